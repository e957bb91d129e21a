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
  affinity    where the pod may run, as text, unless the values say so
  tolerations which taints it tolerates beside those that the values say, as text
  init        the arguments of an init container that is as the container
  mounts      additional mounts, as text
  volumes     additional volumes, as text
  annotations additional annotations, as text
  labels      additional labels, as text
  selectedAs  the component that its labels name, where that is another
*/}}
{{- define "gpuledger.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $databaseTls := ternary (include "gpuledger.databaseTls" (list .root .component) | fromJson) dict (not (empty .secret)) -}}
{{- $login := ternary (include "gpuledger.natsLogin" (list .root .component) | fromJson) dict (not (empty .secret)) -}}
metadata:
  labels:
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include "gpuledger.labels" (list .root (.selectedAs | default .component)) | nindent 4 }}
    {{- with .labels }}
    {{- . | nindent 4 }}
    {{- end }}
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
  {{- if or $values.tolerations .tolerations }}
  tolerations:
    {{- with $values.tolerations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .tolerations }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- if $values.affinity }}
  affinity:
    {{- toYaml $values.affinity | nindent 4 }}
  {{- else if .affinity }}
  affinity:
    {{- .affinity | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .init }}
  initContainers:
    - name: wait
      args: {{ toJson . }}
      {{- include "gpuledger.container" (dict "of" $ "login" $login "databaseTls" $databaseTls) | nindent 6 }}
  {{- end }}
  containers:
    - name: gpuledger
      args: {{ toJson .args }}
      {{- include "gpuledger.container" (dict "of" . "login" $login "databaseTls" $databaseTls) | nindent 6 }}
      {{- with .container }}
      {{- . | nindent 6 }}
      {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- with include "gpuledger.natsVolumes" $login }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with include "gpuledger.databaseTlsVolumes" $databaseTls }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .volumes }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* What the containers of a pod have in common. Call with a dict: of (as for the pod template), login, databaseTls. */}}
{{- define "gpuledger.container" -}}
{{- $values := .of.root.Values -}}
image: {{ include "gpuledger.image" .of.root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
env:
  - name: HOME
    value: /tmp
  {{- with .of.secret }}
  {{- include "gpuledger.serverEnv" (list $.of.root $.of.component .) | nindent 2 }}
  {{- end }}
  {{- with include "gpuledger.natsEnv" .login }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "gpuledger.databaseTlsEnv" .databaseTls }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .of.env }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with include "gpuledger.natsMounts" .login }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "gpuledger.databaseTlsMounts" .databaseTls }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .of.mounts }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
