{{/*
A pod template that runs gpuledger, for the Deployment and for every job. Call with a dict:
  root        the chart's top-level context
  component   the component's name
  account     its ServiceAccount; without one the pod gets no token
  args        the arguments of gpuledger
  secret      the Secret with the servers' URLs; without one it gets neither these nor a login
  resources   the container's resources
  env         additional environment variables, as text
  container   additional fields of the container, as text
  pod         additional fields of the pod, as text
  annotations additional annotations, as text
*/}}
{{- define "gpuledger.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $login := ternary (include "gpuledger.natsLogin" (list .root .component) | fromJson) dict (not (empty .secret)) -}}
metadata:
  labels:
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include "gpuledger.labels" (list .root .component) | nindent 4 }}
  {{- if or .annotations $values.podAnnotations }}
  annotations:
    {{- with .annotations }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  {{- with .account }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: {{ not (empty .account) }}
  enableServiceLinks: false
  {{- with .pod }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  containers:
    - name: gpuledger
      image: {{ include "gpuledger.image" .root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: {{ toJson .args }}
      env:
        - name: HOME
          value: /tmp
        {{- with .secret }}
        {{- include "gpuledger.serverEnv" (list $.root .) | nindent 8 }}
        {{- end }}
        {{- with include "gpuledger.natsEnv" $login }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with and .secret (include "gpuledger.databaseTlsEnv" .root) }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .env }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .container }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with include "gpuledger.natsMounts" $login }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with and .secret (include "gpuledger.databaseTlsMounts" .root) }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- with include "gpuledger.natsVolumes" $login }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with and .secret (include "gpuledger.databaseTlsVolumes" .root) }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
