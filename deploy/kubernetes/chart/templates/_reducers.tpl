{{- /* What the values change in the StatefulSet. */ -}}
{{- define "sluice.reducers" -}}
{{- $pool := .Values.pool }}
spec:
  serviceName: {{ include "sluice.name" . }}
  replicas: {{ $pool.replicas }}
  selector:
    matchLabels:
      {{- include "sluice.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "sluice.selector" . | nindent 8 }}
      annotations:
        # Changed variables restart the reducers one by one.
        checksum/variables: {{ include "sluice.variables" . | sha256sum }}
    spec:
      {{- with $pool.nodeSelector }}
      nodeSelector: {{ toJson . }}
      {{- end }}
      {{- with $pool.tolerations }}
      tolerations: {{ toJson . }}
      {{- end }}
      {{- range $index, $secret := $pool.pullSecrets }}
      {{- if eq $index 0 }}
      imagePullSecrets:
      {{- end }}
        - name: {{ $secret }}
      {{- end }}
      containers:
        - name: reducer
          image: {{ printf "%s:%s" $pool.image ($pool.tag | default .Chart.AppVersion) }}
          envFrom:
            - configMapRef:
                name: {{ include "sluice.name" . }}
          {{- if .Values.models.enabled }}
          env:
            - name: SLUICE_ANNOUNCE
              value: $(POD).{{ include "sluice.name" . }}.$(NAMESPACE)
          {{- end }}
          resources:
            requests:
              cpu: {{ $pool.cpus | quote }}
              memory: {{ $pool.memory }}
            limits:
              cpu: {{ $pool.cpus | quote }}
              memory: {{ $pool.memory }}
              {{- if eq $pool.network "rdma" }}
              rdma/hca_shared_devices_a: null
              {{ $pool.rdmaDevice }}: "1"
              {{- end }}
          {{- if .Values.tls.clientCaSecret }}
          volumeMounts:
            - name: tls-client
              mountPath: /run/secrets/tls-client
              readOnly: true
          {{- end }}
      volumes:
        - name: key
          secret:
            secretName: {{ $pool.keySecret }}
        {{- with .Values.tls.certSecret }}
        - name: tls
          secret:
            secretName: {{ . }}
        {{- end }}
        {{- with .Values.tls.clientCaSecret }}
        - name: tls-client
          secret:
            secretName: {{ . }}
            defaultMode: 0440
        {{- end }}
  {{- if .Values.models.enabled }}
  volumeClaimTemplates:
    - metadata:
        name: models
      spec:
        accessModes:
          - ReadWriteOnce
        {{- with .Values.models.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources:
          requests:
            storage: {{ .Values.models.storage }}
  {{- end }}
{{- end -}}
