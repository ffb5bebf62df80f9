{{- /* The variables of a reducer: those of kustomize's .env files, changed by the values. */ -}}
{{- define "sluice.variables" -}}
{{- $pool := .Values.pool }}
{{- $tls := .Values.tls }}
{{- $tenants := .Values.tenants }}
{{- $models := .Values.models }}
{{- $files := list "base/reducer" }}
{{- if eq $pool.network "pod" }}{{ $files = append $files "overlays/tcp/tcp" }}{{ end }}
{{- if $tls.certSecret }}{{ $files = append $files "components/tls/tls" }}{{ end }}
{{- if $models.enabled }}{{ $files = append $files "components/models/models" }}{{ end }}
{{- $out := dict }}
{{- range $files }}
  {{- range splitList "\n" ($.Files.Get (printf "files/%s.env" .)) }}
    {{- if regexMatch "^\\w+=" . }}{{ $_ := set $out (regexFind "^\\w+" .) (regexReplaceAll "^\\w+=" . "") }}{{ end }}
  {{- end }}
{{- end }}
{{- $mebibytes := trimSuffix "Gi" $pool.memory | int | mul (ternary 384 768 $models.enabled) | int }}
{{- $share := ternary (printf "%dG" (div $mebibytes 1024)) (printf "%dM" $mebibytes) (eq (mod $mebibytes 1024) 0) }}
{{- $_ := set $out "SLUICE_MEMORY_LIMIT" $share }}
{{- if $models.enabled }}
  {{- $_ := set $out "SLUICE_STATE_MEMORY" $share }}
  {{- $_ := set $out "SLUICE_COORDINATOR" $models.coordinator }}
{{- end }}
{{- if ne $tls.mode "off" }}{{ $_ := set $out "SLUICE_TLS" $tls.mode }}{{ end }}
{{- if $tls.clientCaSecret }}{{ $_ := set $out "SLUICE_TLS_CLIENT_CA" "/run/secrets/tls-client/ca.crt" }}{{ end }}
{{- $weights := list }}
{{- range $tenant, $weight := $tenants.weights }}{{ $weights = append $weights (printf "%s=%v" $tenant $weight) }}{{ end }}
{{- if $weights }}{{ $_ := set $out "SLUICE_WEIGHT" (join "," $weights) }}{{ end }}
{{- if ne (int $tenants.defaultWeight) 1 }}{{ $_ := set $out "SLUICE_DEFAULT_WEIGHT" (toString $tenants.defaultWeight) }}{{ end }}
{{- if $tenants.memory }}{{ $_ := set $out "SLUICE_TENANT_MEMORY_LIMIT" $tenants.memory }}{{ end }}
{{- if $tenants.jobIsTenant }}{{ $_ := set $out "SLUICE_TENANT_IS_JOB" "true" }}{{ end }}
{{- range $option, $value := $pool.options }}
  {{- $text := toString $value }}
  {{- /* A number of a values file is a float, which toString writes as 1.048576e+06. */}}
  {{- if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $text = $value | int64 | toString }}{{ end }}{{ end }}
  {{- $_ := set $out (printf "SLUICE_%s" (upper $option | replace "-" "_")) $text }}
{{- end }}
{{- toYaml $out }}
{{- end -}}
