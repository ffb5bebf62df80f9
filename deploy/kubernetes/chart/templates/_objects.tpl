{{- /*
The objects are those of kustomize: each template reads files of base/, overlays/ or components/ (files/ links to them), and merges
what the values change.
*/ -}}

{{- define "sluice.name" -}}
{{ printf "%s-reducer" (trunc 40 .Release.Name) }}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice-reducer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.metadata" -}}
name: {{ include "sluice.name" . }}
labels:
  {{- include "sluice.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: sluice
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* sluice.merge (list OBJECT PATCH) changes OBJECT like a strategic merge patch: null removes, lists of named items merge by name. */ -}}
{{- define "sluice.merge" -}}
{{- $object := first . }}
{{- range $key, $new := last . }}
  {{- $old := get $object $key }}
  {{- if kindIs "invalid" $new }}
    {{- $_ := unset $object $key }}
  {{- else if and (kindIs "map" $new) (kindIs "map" $old) }}
    {{- include "sluice.merge" (list $old $new) }}
  {{- else if and (kindIs "slice" $new) (kindIs "slice" $old) (kindIs "map" (first $new)) (hasKey (first $new | default dict) "name") }}
    {{- range $item := $new }}
      {{- $same := dict }}
      {{- range $old }}{{ if eq .name $item.name }}{{ $same = . }}{{ end }}{{ end }}
      {{- if $same }}{{ include "sluice.merge" (list $same $item) }}{{ else }}{{ $old = append $old $item }}{{ end }}
    {{- end }}
    {{- $_ := set $object $key $old }}
  {{- else }}
    {{- $_ := set $object $key $new }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* sluice.object (list . FILES PATCHES) renders the object of the first file with the other files, the metadata and PATCHES merged. */ -}}
{{- define "sluice.object" -}}
{{- $top := first . }}
{{- $object := dict }}
{{- range index . 1 }}{{ include "sluice.merge" (list $object ($top.Files.Get (printf "files/%s" .) | fromYaml)) }}{{ end }}
{{- include "sluice.merge" (list $object (dict "metadata" (include "sluice.metadata" $top | fromYaml))) }}
{{- range last . }}{{ include "sluice.merge" (list $object .) }}{{ end }}
{{- toYaml $object }}
{{- end -}}
