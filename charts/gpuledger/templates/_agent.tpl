{{/* Whether agents run: "true" or nothing. They do where they can reach the ledger, unless the values say otherwise. */}}
{{- define "gpuledger.runsAgents" -}}
{{- $enabled := toString .Values.agent.enabled }}
{{- $reach := or (include "gpuledger.bringsNats" .) .Values.agent.nats.url .Values.agent.nats.urlSecret }}
{{- if or (eq $enabled "true") (and (eq $enabled "") $reach) }}true{{ end }}
{{- end }}

{{/*
Whether agents run on all nodes with Linux and not only where Node Feature Discovery finds GPUs: "true" or nothing.
*/}}
{{- define "gpuledger.agentsOnAllNodes" -}}
{{- $nodes := .Values.agent.nodes | default "auto" }}
{{- $hasDiscovery := .Capabilities.APIVersions.Has "nfd.k8s-sigs.io/v1alpha1" }}
{{- if and (include "gpuledger.runsAgents" .) (or (eq $nodes "all") (and (eq $nodes "auto") (not $hasDiscovery))) }}true{{ end }}
{{- end }}

{{/* Whether the status writer labels the nodes that agents find GPUs on, for the components: "true" or nothing. */}}
{{- define "gpuledger.labelsNodes" -}}
{{- if and .Values.components.manage (include "gpuledger.agentsOnAllNodes" .) }}true{{ end }}
{{- end }}

{{/* Whether agents log in by the tokens of their ServiceAccount: "true" or nothing. */}}
{{- define "gpuledger.agentsByToken" -}}
{{- $given := or .Values.agent.nats.url .Values.agent.nats.urlSecret }}
{{- $brought := and (include "gpuledger.bringsNats" .) (not $given) }}
{{- if and (include "gpuledger.runsAgents" .) (or $brought (include "gpuledger.ownCallout" .)) }}true{{ end }}
{{- end }}

{{/* Whether the values ask for an auth callout beside a NATS server of one's own: "true" or nothing. */}}
{{- define "gpuledger.ownCallout" -}}
{{- if (.Values.agent.authCallout | default dict).enabled }}true{{ end }}
{{- end }}

{{/* Refuses values that are incomplete, or contradictory, about the auth callout of a NATS server of one's own. */}}
{{- define "gpuledger.checkAuthCallout" -}}
{{- if include "gpuledger.ownCallout" . }}
{{- if include "gpuledger.bringsNats" . }}
{{- fail "agent.authCallout is for a NATS server of your own, but this release brings one with an auth callout. Leave it off, or name your server (servers.natsUrl or servers.existingSecret)." }}
{{- end }}
{{- with .Values.agent.nats }}
{{- $_ := required "agent.authCallout needs agent.nats.url, the address where both the agents and the auth callout find your NATS server." .url }}
{{- if or .credentialsSecret .credentialsPath }}
{{- fail "agent.nats.credentialsSecret and agent.nats.credentialsPath contradict agent.authCallout, with which agents log in by the tokens of their ServiceAccount. Leave them empty." }}
{{- end }}
{{- end }}
{{- with .Values.agent.authCallout }}
{{- if not (or .credentialsSecret (and .tlsSecret .clientCertificate)) }}
{{- fail "agent.authCallout.credentialsSecret is required: a Secret with the login of the auth callout's user, gpuledger-callout; docs/agent-credentials.md says what your NATS server needs." }}
{{- end }}
{{- $_ := required "agent.authCallout.keysSecret is required: a Secret with the seed that `gpuledger nats-keys` made." .keysSecret }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses values that are incomplete, or contradictory, about how the agents reach the ledger. */}}
{{- define "gpuledger.checkAgent" -}}
{{- $services := .Values.servers.existingSecret | default (include "gpuledger.fullname" .) }}
{{- $byToken := include "gpuledger.agentsByToken" . }}
{{- with .Values.agent.nats }}
{{- if and $byToken (include "gpuledger.bringsNats" $) (or .credentialsSecret .credentialsPath .tlsVolume) }}
{{- fail "agent.nats.credentialsSecret, agent.nats.credentialsPath and agent.nats.tlsVolume are for a NATS server of your own; leave them empty: agents log in to the chart's NATS server by the tokens of their ServiceAccount." }}
{{- end }}
{{- if not (or .url .urlSecret $byToken) }}
{{- fail "agent.enabled needs to know where the ledger is: give agent.nats.url, or in agent.nats.urlSecret a Secret that holds the URL; docs/agent-credentials.md says which rights an agent needs." }}
{{- end }}
{{- if and (include "gpuledger.bringsNats" $) (or .url .urlSecret) }}
{{- fail "agent.nats.url and agent.nats.urlSecret are for a NATS server of your own, but this release brings one, and its services would record elsewhere than the agents. Leave them empty, or name your server for the services as well (servers.natsUrl or servers.existingSecret)." }}
{{- end }}
{{- if and .url .urlSecret }}
{{- fail "agent.nats.url and agent.nats.urlSecret are both given. Give one of them." }}
{{- end }}
{{- if eq .urlSecret $services }}
{{- fail "agent.nats.urlSecret is the services' Secret, with the URL of the database and the right to record anything. Give the agents a Secret of their own." }}
{{- end }}
{{- if and .credentialsSecret .credentialsPath }}
{{- fail "agent.nats.credentialsSecret and agent.nats.credentialsPath are both given. Give one of them." }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Nodes with GPUs, managed or not: the devices of a node that is no longer managed leave their pools, and only its agent
can confirm that. Where nobody labels nodes with GPUs, the agents themselves find out which have any.
*/}}
{{- define "gpuledger.agentAffinity" -}}
{{- if .Values.agent.affinity -}}
{{- toYaml .Values.agent.affinity }}
{{- else -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          {{- if include "gpuledger.agentsOnAllNodes" . }}
          - {key: kubernetes.io/os, operator: In, values: [linux]}
          {{- else }}
          - {key: gpu.deckhouse.io/present, operator: Exists}
          {{- end }}
{{- end }}
{{- end }}

{{/* Whether agents have a socket for health monitors: "true" or nothing. */}}
{{- define "gpuledger.takesHealthReports" -}}
{{- if (.Values.agent.healthMonitors | default dict).enabled }}true{{ end }}
{{- end }}

{{/* The namespaces whose pods get preflight checks, separated by commas; nothing where there are no checks. */}}
{{- define "gpuledger.preflightNamespaces" -}}
{{- with .Values.preflight }}
{{- if .enabled }}{{ .namespaces | default list | uniq | join "," }}{{ end }}
{{- end }}
{{- end }}

{{/*
The runtime lets a container partition cards (NVIDIA_MIG_*) only with SYS_ADMIN, and does not start one that requests
it without.
*/}}
{{- define "gpuledger.agentEnv" -}}
{{- $agent := .Values.agent -}}
- name: HOME
  value: /tmp
# `gpuledger agent run` also sets it, but only after it has loaded the command line into memory.
- name: MALLOC_ARENA_MAX
  value: "2"
- name: NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
- name: HOST_IP
  valueFrom:
    fieldRef: {fieldPath: status.hostIP}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- $capabilities := $agent.securityContext.capabilities | default dict }}
{{- if or $agent.securityContext.privileged (has "SYS_ADMIN" ($capabilities.add | default list)) }}
- name: NVIDIA_MIG_CONFIG_DEVICES
  value: all
- name: NVIDIA_MIG_MONITOR_DEVICES
  value: all
{{- end }}
{{- include "gpuledger.agentLedgerEnv" . | nindent 0 }}
- name: GPULEDGER_METRICS_LISTEN
  value: 0.0.0.0:8080
- name: GPULEDGER_EXPORTER_URL
  value: {{ $agent.exporterUrl | quote }}
- name: GPULEDGER_AGENT_STATE_DIR
  value: {{ $agent.stateDirectory | quote }}
- name: GPULEDGER_KUBELET_DIR
  value: {{ $agent.kubeletDirectory | quote }}
{{- with $agent.runtimeProxyDirectory }}
- name: GPULEDGER_RUNTIME_PROXY_DIR
  value: {{ . | quote }}
{{- end }}
{{- if .Values.machineConfig.enabled }}
- name: GPULEDGER_CONFIG_FACTS_DIR
  value: {{ include "gpuledger.configReports" . | quote }}
{{- end }}
{{- with $agent.devicesDirectory }}
- name: GPULEDGER_DEVICES_DIR
  value: {{ . | quote }}
{{- end }}
- name: GPULEDGER_HARDWARE
  value: {{ $agent.hardware | quote }}
- name: GPULEDGER_ALLOCATE
  value: {{ $agent.allocate | quote }}
- name: GPULEDGER_SHARING_DOMAIN
  value: {{ .Values.sharing.domain | quote }}
{{- if ne $agent.allocate "env" }}
- name: GPULEDGER_CDI_KIND
  value: {{ $agent.cdi.kind | quote }}
- name: GPULEDGER_CDI_DIRS
  value: {{ join ":" $agent.cdi.directories | quote }}
{{- end }}
{{- with $agent.xidClasses }}
- name: GPULEDGER_XID_CLASSES
  value: {{ . | quote }}
{{- end }}
{{- if include "gpuledger.takesHealthReports" . }}
- name: GPULEDGER_HEALTH_SOCKET
  value: {{ printf "%s/health.sock" $agent.healthMonitors.directory | quote }}
- name: GPULEDGER_HEALTH_NAMESPACES
  value: {{ prepend $agent.healthMonitors.namespaces .Release.Namespace | uniq | join "," | quote }}
- name: GPULEDGER_POD_LOGS
  value: {{ $agent.healthMonitors.podLogsDirectory | quote }}
{{- with include "gpuledger.preflightNamespaces" . }}
- name: GPULEDGER_PREFLIGHT_NAMESPACES
  value: {{ . | quote }}
- name: GPULEDGER_CONTAINER_LOGS
  value: {{ $agent.healthMonitors.containerLogsDirectory | quote }}
- name: GPULEDGER_INSTANCE_TYPE_LABEL
  value: {{ $.Values.preflight.ncclTopology.instanceTypeLabel | quote }}
{{- end }}
{{- end }}
{{- with $agent.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where clients find the release's own NATS server. */}}
{{- define "gpuledger.natsAddress" -}}
tls://{{ include "gpuledger.fullname" . }}-nats.{{ .Release.Namespace }}.svc:4222
{{- end }}

{{/* The ledger's address and the agent's credentials. */}}
{{- define "gpuledger.agentLedgerEnv" -}}
{{- if include "gpuledger.bringsNats" . -}}
- name: NATS_URL
  value: {{ include "gpuledger.natsAddress" . }}
- name: GPULEDGER_NATS_CA
  value: /etc/gpuledger/tls/ca.crt
{{- else -}}
{{- include "gpuledger.agentOwnLedgerEnv" .Values.agent.nats }}
{{- end }}
{{- if include "gpuledger.agentsByToken" . }}
- name: GPULEDGER_NATS_TOKEN_FILE
  value: /etc/gpuledger/token/token
{{- end }}
{{- end }}

{{/* The same for a NATS server of one's own. Call with agent.nats. */}}
{{- define "gpuledger.agentOwnLedgerEnv" -}}
- name: NATS_URL
{{- if .urlSecret }}
  valueFrom:
    secretKeyRef: {name: {{ .urlSecret }}, key: {{ .urlSecretKey }}}
{{- else }}
  value: {{ .url | quote }}
{{- end }}
{{- if or .credentialsSecret .credentialsPath }}
- name: GPULEDGER_NATS_CREDENTIALS
  value: /etc/gpuledger/agent.creds
{{- end }}
{{- if .tlsVolume }}
- name: GPULEDGER_NATS_CA
  value: /etc/gpuledger/tls/ca.crt
{{- if .clientCertificate }}
- name: GPULEDGER_NATS_CERTIFICATE
  value: /etc/gpuledger/tls/tls.crt
- name: GPULEDGER_NATS_KEY
  value: /etc/gpuledger/tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/*
/healthz fails if a part of the agent is stuck, which a restart may cure. It does not fail while the ledger is
unreachable: events then wait on the node's disk.
*/}}
{{- define "gpuledger.agentProbes" -}}
startupProbe:
  httpGet: {path: /metrics, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 24
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{/* Folders of the node are mounted at their own paths, because those name the sockets in them. */}}
{{- define "gpuledger.agentMounts" -}}
{{- $agent := .Values.agent -}}
- name: tmp
  mountPath: /tmp
- name: state
  mountPath: {{ $agent.stateDirectory }}
{{- with $agent.runtimeProxyDirectory }}
- name: runtime-proxy
  mountPath: {{ . }}
{{- end }}
{{- if .Values.machineConfig.enabled }}
- name: machine-config
  mountPath: {{ include "gpuledger.configReports" . }}
{{- end }}
{{- with $agent.devicesDirectory }}
- name: declared-devices
  mountPath: {{ . }}
  readOnly: true
{{- end }}
- name: device-plugins
  mountPath: {{ $agent.kubeletDirectory }}/device-plugins
- name: pod-resources
  mountPath: {{ $agent.kubeletDirectory }}/pod-resources
  readOnly: true
{{- if include "gpuledger.takesHealthReports" . }}
- name: health-monitors
  mountPath: {{ $agent.healthMonitors.directory }}
- name: pod-logs
  mountPath: {{ $agent.healthMonitors.podLogsDirectory }}
  readOnly: true
{{- if include "gpuledger.preflightNamespaces" . }}
- name: container-logs
  mountPath: {{ $agent.healthMonitors.containerLogsDirectory }}
  readOnly: true
{{- end }}
{{- end }}
{{- if ne $agent.allocate "env" }}
{{- range $number, $directory := $agent.cdi.directories }}
- name: cdi-{{ $number }}
  mountPath: {{ $directory }}
  readOnly: true
{{- end }}
{{- end }}
{{- if $agent.nats.credentialsSecret }}
# Each agent sees only its own node's key of the Secret. The next pod gets a new value.
- name: credentials
  mountPath: /etc/gpuledger/agent.creds
  subPathExpr: $(NODE_NAME)
  readOnly: true
{{- else if $agent.nats.credentialsPath }}
- name: credentials
  mountPath: /etc/gpuledger/agent.creds
  readOnly: true
{{- end }}
{{- $byToken := include "gpuledger.agentsByToken" . }}
{{- if or $agent.nats.tlsVolume (include "gpuledger.bringsNats" .) }}
- name: tls
  mountPath: /etc/gpuledger/tls
  readOnly: true
{{- end }}
{{- if $byToken }}
- name: token
  mountPath: /etc/gpuledger/token
  readOnly: true
{{- end }}
{{- with $agent.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gpuledger.agentVolumes" -}}
{{- $agent := .Values.agent -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: state
  hostPath: {path: {{ $agent.stateDirectory }}, type: DirectoryOrCreate}
{{- with $agent.runtimeProxyDirectory }}
- name: runtime-proxy
  hostPath: {path: {{ . }}, type: DirectoryOrCreate}
{{- end }}
{{- if .Values.machineConfig.enabled }}
- name: machine-config
  hostPath: {path: {{ include "gpuledger.configReports" . }}, type: DirectoryOrCreate}
{{- end }}
{{- with $agent.devicesDirectory }}
- name: declared-devices
  hostPath: {path: {{ . }}, type: DirectoryOrCreate}
{{- end }}
- name: device-plugins
  hostPath: {path: {{ $agent.kubeletDirectory }}/device-plugins, type: Directory}
- name: pod-resources
  hostPath: {path: {{ $agent.kubeletDirectory }}/pod-resources, type: Directory}
{{- if include "gpuledger.takesHealthReports" . }}
- name: health-monitors
  hostPath: {path: {{ $agent.healthMonitors.directory }}, type: DirectoryOrCreate}
- name: pod-logs
  hostPath: {path: {{ $agent.healthMonitors.podLogsDirectory }}, type: DirectoryOrCreate}
{{- if include "gpuledger.preflightNamespaces" . }}
- name: container-logs
  hostPath: {path: {{ $agent.healthMonitors.containerLogsDirectory }}, type: DirectoryOrCreate}
{{- end }}
{{- end }}
{{- if ne $agent.allocate "env" }}
{{- range $number, $directory := $agent.cdi.directories }}
- name: cdi-{{ $number }}
  hostPath: {path: {{ $directory }}, type: DirectoryOrCreate}
{{- end }}
{{- end }}
{{- if $agent.nats.credentialsSecret }}
- name: credentials
  secret: {secretName: {{ $agent.nats.credentialsSecret }}, defaultMode: 0400}
{{- else if $agent.nats.credentialsPath }}
- name: credentials
  hostPath: {path: {{ $agent.nats.credentialsPath }}, type: File}
{{- end }}
{{- if include "gpuledger.bringsNats" . }}
- name: tls
  secret:
    secretName: {{ include "gpuledger.fullname" . }}-agents
    items: [{key: ca.crt, path: ca.crt}]
{{- else if $agent.nats.tlsVolume }}
- name: tls
  {{- toYaml $agent.nats.tlsVolume | nindent 2 }}
{{- end }}
{{- if include "gpuledger.agentsByToken" . }}
# The kubelet renews it; it names the pod and its node, and is good for nothing else.
- name: token
  projected:
    sources:
      - serviceAccountToken: {audience: gpuledger-agents, expirationSeconds: 3600, path: token}
{{- end }}
{{- with $agent.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
