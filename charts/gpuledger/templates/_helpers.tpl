{{/* The names of objects, which never exceed 63 characters, including suffixes of up to 14. */}}
{{- define "gpuledger.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 49 | trimSuffix "-" }}
{{- end }}

{{- define "gpuledger.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 49 | trimSuffix "-" }}
{{- else }}
{{- $name := include "gpuledger.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full | trunc 49 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels of every object. Call with (list $ "component"). */}}
{{- define "gpuledger.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: gpuledger
{{ include "gpuledger.selector" . }}
{{- end }}

{{/* The labels that select a component's pods; they can never change. */}}
{{- define "gpuledger.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "gpuledger.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Marks an object as a hook that runs before an install and an upgrade. Call with its weight. */}}
{{- define "gpuledger.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "gpuledger.image" -}}
{{- $hint := "image.repository is required: build the image from the Dockerfile, push it where your nodes can pull it, and name it." }}
{{- $repository := required $hint .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/*
Refuses values without the defaults of what an earlier chart did not have. The first template that helm renders calls it,
because any other one ends with a nil pointer.
*/}}
{{- define "gpuledger.checkDefaults" -}}
{{- $values := .Values -}}
{{- range list "admission" "agent" "components" "dashboards" "drain" "export" "healthGateway" "logArchive" "logProof" "machineConfig" "nats" "objects" "partitions" "postgresql" "preflight" "presets" "processes" "progressDeadlineSeconds" "prometheusRule" "quarantine" "remediation" "restrictedAccess" "settings" "sharing" }}
{{- if not (hasKey $values .) }}
{{- fail (printf "the values lack the defaults of %s, because they are those of an earlier chart (--reuse-values). Upgrade with --reset-then-reuse-values." .) }}
{{- end }}
{{- end }}
{{- include "gpuledger.checkTexts" . }}
{{- end }}

{{/* Refuses texts that cannot be used, all at once, and says in words what each may be. */}}
{{- define "gpuledger.checkTexts" -}}
{{- $wrong := list }}
{{- range $rule := .Files.Get "value-patterns.yaml" | fromYamlArray }}
{{- $value := $.Values }}
{{- range splitList "." $rule.value }}
{{- if and (kindIs "map" $value) (hasKey $value .) }}
{{- $value = get $value . }}
{{- else }}
{{- $value = false }}
{{- end }}
{{- end }}
{{- if and (kindIs "string" $value) (not (regexMatch $rule.pattern (toString $value))) }}
{{- $shown := ternary "is" (printf "is %s, and" (quote $value)) ($rule.holdsSecret | default false) }}
{{- $wrong = append $wrong (printf "%s %s not %s" $rule.value $shown $rule.words) }}
{{- end }}
{{- end }}
{{- with $wrong }}
{{- fail (join "; " .) }}
{{- end }}
{{- end }}

{{/* Whether the release brings NATS, or PostgreSQL: "true" or nothing. Servers that are given take precedence. */}}
{{- define "gpuledger.bringsNats" -}}
{{- if and .Values.nats.enabled (not .Values.servers.existingSecret) (not .Values.servers.natsUrl) }}true{{ end }}
{{- end }}

{{- define "gpuledger.bringsPostgres" -}}
{{- if and .Values.postgresql.enabled (not .Values.servers.existingSecret) (not .Values.servers.databaseUrl) }}true{{ end }}
{{- end }}

{{- define "gpuledger.bringsServers" -}}
{{- if or (include "gpuledger.bringsNats" .) (include "gpuledger.bringsPostgres" .) }}true{{ end }}
{{- end }}

{{/* Refuses values that are incomplete, or contradictory, about the servers. */}}
{{- define "gpuledger.checkServers" -}}
{{- $brought := dict "natsUrl" (include "gpuledger.bringsNats" .) "databaseUrl" (include "gpuledger.bringsPostgres" .) }}
{{- $switch := dict "natsUrl" "nats.enabled" "databaseUrl" "postgresql.enabled" }}
{{- with .Values.servers }}
{{- if and .databaseReadUrl (not .databaseUrl) }}
{{- fail "servers.databaseReadUrl is about a standby of a PostgreSQL server of your own; give servers.databaseUrl as well, or leave it empty: commands read from the chart's own standbys." }}
{{- end }}
{{- if and .databaseReadUrlKey (not .existingSecret) }}
{{- fail "servers.databaseReadUrlKey is a key of the Secret in servers.existingSecret; name that, or leave it empty." }}
{{- end }}
{{- if and .existingSecret (or .natsUrl .databaseUrl) }}
{{- fail "servers.existingSecret and URLs are both given. Give the name of a Secret, or servers.natsUrl and servers.databaseUrl." }}
{{- end }}
{{- if not .existingSecret }}
{{- range $url := list "natsUrl" "databaseUrl" }}
{{- if not (get $brought $url) }}
{{- $hint := printf "servers.%s is required without %s: give it, name a Secret that holds both URLs in servers.existingSecret, or leave the server to the chart." $url (get $switch $url) }}
{{- $_ := required $hint (get $.Values.servers $url) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $brought.natsUrl (or .nats.credentialsSecret .nats.tlsSecret .operator.credentialsSecret .operator.tlsSecret .reader.credentialsSecret .reader.tlsSecret .skipper.credentialsSecret .skipper.tlsSecret) }}
{{- fail "servers.nats, servers.operator, servers.reader and servers.skipper are logins for a NATS server of your own; give its URL, or leave them empty: the chart's NATS server has logins that the chart makes." }}
{{- end }}
{{- if and $brought.databaseUrl (or .database.tlsSecret .database.sslMode) }}
{{- fail "servers.database is about a PostgreSQL server of your own; give its URL, or leave it empty: the chart's own server is always fully verified." }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Refuses to install servers whose volumes would never come, because the cluster has no default StorageClass; they would
wait for them for ever. Without a cluster, as in `helm template`, nothing is found out.
*/}}
{{- define "gpuledger.checkVolumes" -}}
{{- if and .Release.IsInstall (.Capabilities.APIVersions.Has "storage.k8s.io/v1/StorageClass") (lookup "v1" "Namespace" "" "kube-system") }}
{{- $classes := list }}
{{- $default := "" }}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items }}
{{- $classes = append $classes .metadata.name }}
{{- $marks := .metadata.annotations | default dict }}
{{- if has "true" (list (get $marks "storageclass.kubernetes.io/is-default-class") (get $marks "storageclass.beta.kubernetes.io/is-default-class")) }}
{{- $default = .metadata.name }}
{{- end }}
{{- end }}
{{- $brought := dict "nats" (include "gpuledger.bringsNats" .) "postgresql" (include "gpuledger.bringsPostgres" .) }}
{{- range $part, $is := $brought }}
{{- $volumes := (get $.Values $part).persistence }}
{{- $suffix := ternary "nats" "postgres" (eq $part "nats") }}
{{- $claim := printf "data-%s-%s-0" (include "gpuledger.fullname" $) $suffix }}
{{- if and $is $volumes.enabled (not $volumes.storageClass) (not $default) (not (lookup "v1" "PersistentVolumeClaim" $.Release.Namespace $claim)) }}
{{- $others := $classes | sortAlpha | join ", " | default "there is none: install a provisioner of volumes first" }}
{{- fail (printf "this cluster has no default StorageClass, so that the server of %[1]s would wait for its volume for ever. Set %[1]s.persistence.storageClass (%[2]s), or %[1]s.persistence.enabled=false for a trial whose data goes with the pod, or bring a server of your own (docs/installing.md)." $part $others) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The variables that name the object store and the login to it; nothing where there is none. */}}
{{- define "gpuledger.objectsEnv" -}}
{{- with .Values.objects }}
{{- if .url }}
- name: GPULEDGER_OBJECTS_URL
  value: {{ .url | quote }}
{{- with .endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- if .credentialsSecret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ .credentialsSecret }}, key: {{ .accessKeyIdKey }}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .credentialsSecret }}, key: {{ .secretAccessKeyKey }}}
{{- end }}
{{- if and (not (hasPrefix "s3:" .url)) (or .endpoint .region .credentialsSecret) }}
{{- fail "objects.endpoint, objects.region and objects.credentialsSecret are about a bucket; leave them empty with a file: URL." }}
{{- end }}
{{- else if or .endpoint .region .credentialsSecret }}
{{- fail "objects.endpoint, objects.region and objects.credentialsSecret are about the bucket in objects.url; give that." }}
{{- end }}
{{- end }}
{{- end }}

{{/* The data of the chart's own Secret: the URLs that the values give. */}}
{{- define "gpuledger.secretData" -}}
{{- with .Values.servers.natsUrl }}
{{ $.Values.servers.natsUrlKey }}: {{ . | quote }}
{{- end }}
{{- with .Values.servers.databaseUrl }}
{{ $.Values.servers.databaseUrlKey }}: {{ . | quote }}
{{- end }}
{{- with .Values.servers.databaseReadUrl }}
DATABASE_READ_URL: {{ . | quote }}
{{- end }}
{{- end }}

{{/* As whom a component works with the servers, by the name of its role. Call with the component. */}}
{{- define "gpuledger.role" -}}
{{- get (dict "migrate" "operator" "log-archive" "operator" "log-proof" "reader" "export" "reader" "rules" "skipper" "remedies" "skipper") . | default "services" }}
{{- end }}

{{/*
How a pod logs in to NATS, as JSON: credentialsSecret, credentialsKey, tlsSecret, clientCertificate, and brought for the
chart's own server. Call with (list $ "component"); `migrate` and `log-archive` are the operator, `log-proof` and
`export` are readers, `rules` and `remedies` the skipper, all others are the services.
*/}}
{{- define "gpuledger.natsLogin" -}}
{{- $root := index . 0 -}}
{{- $servers := $root.Values.servers -}}
{{- $role := include "gpuledger.role" (index . 1) -}}
{{- $login := $servers.nats -}}
{{- if include "gpuledger.bringsNats" $root }}
{{- $secret := printf "%s-%s" (include "gpuledger.fullname" $root) $role }}
{{- $login = dict "credentialsSecret" $secret "credentialsKey" "nats.creds" "tlsSecret" $secret "clientCertificate" false "brought" true }}
{{- else if ne $role "services" }}
{{- $own := get $servers $role }}
{{- $given := dict "clientCertificate" $login.clientCertificate }}
{{- $key := ternary $own.credentialsKey $login.credentialsKey (not (empty $own.credentialsSecret)) }}
{{- $_ := set $given "credentialsKey" $key }}
{{- range list "credentialsSecret" "tlsSecret" }}
{{- $_ := set $given . (get $own . | default (get $servers.nats .)) }}
{{- end }}
{{- $login = $given }}
{{- end }}
{{- toJson $login }}
{{- end }}

{{/* The variables that name the files of a login. Call with the login. */}}
{{- define "gpuledger.natsEnv" -}}
{{- if .credentialsSecret }}
- name: GPULEDGER_NATS_CREDENTIALS
  value: /etc/gpuledger/nats/nats.creds
{{- end }}
{{- if .tlsSecret }}
- name: GPULEDGER_NATS_CA
  value: /etc/gpuledger/nats-tls/ca.crt
{{- if .clientCertificate }}
- name: GPULEDGER_NATS_CERTIFICATE
  value: /etc/gpuledger/nats-tls/tls.crt
- name: GPULEDGER_NATS_KEY
  value: /etc/gpuledger/nats-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuledger.replicasEnv" -}}
{{- with ternary .Values.nats.replicas .Values.servers.nats.replicas (eq (include "gpuledger.bringsNats" .) "true") -}}
- name: GPULEDGER_NATS_REPLICAS
  value: {{ . | quote }}
{{- end }}
{{- if gt (int .Values.partitions) 1 }}
- name: GPULEDGER_PARTITIONS
  value: {{ .Values.partitions | quote }}
{{- end }}
{{- end }}

{{/* Whole folders, because the kubelet renews no file that is mounted by itself. */}}
{{- define "gpuledger.natsMounts" -}}
{{- if .credentialsSecret }}
- name: nats
  mountPath: /etc/gpuledger/nats
  readOnly: true
{{- end }}
{{- if .tlsSecret }}
- name: nats-tls
  mountPath: /etc/gpuledger/nats-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "gpuledger.natsVolumes" -}}
{{- if .credentialsSecret }}
- name: nats
  secret:
    secretName: {{ .credentialsSecret }}
    items: [{key: {{ .credentialsKey }}, path: nats.creds}]
{{- end }}
{{- if .tlsSecret }}
- name: nats-tls
  secret:
    secretName: {{ .tlsSecret }}
    {{- if .brought }}
    items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
{{- end }}
{{- end }}

{{/* How a pod verifies PostgreSQL, as JSON: sslMode, tlsSecret, clientCertificate. Call with (list $ "component"). */}}
{{- define "gpuledger.databaseTls" -}}
{{- $root := index . 0 -}}
{{- if include "gpuledger.bringsPostgres" $root -}}
{{- $secret := printf "%s-%s" (include "gpuledger.fullname" $root) (include "gpuledger.role" (index . 1)) -}}
{{- dict "sslMode" "" "tlsSecret" $secret "clientCertificate" false "brought" true | toJson }}
{{- else -}}
{{- $root.Values.servers.database | toJson }}
{{- end }}
{{- end }}

{{/* libpq reads these variables where the URL does not say it. Call with the TLS. */}}
{{- define "gpuledger.databaseTlsEnv" -}}
{{- with .sslMode | default (ternary "verify-full" "" (not (empty .tlsSecret))) }}
- name: PGSSLMODE
  value: {{ . }}
{{- end }}
{{- if .tlsSecret }}
- name: PGSSLROOTCERT
  value: /etc/gpuledger/postgres-tls/ca.crt
{{- if .clientCertificate }}
- name: PGSSLCERT
  value: /etc/gpuledger/postgres-tls/tls.crt
- name: PGSSLKEY
  value: /etc/gpuledger/postgres-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuledger.databaseTlsMounts" -}}
{{- if .tlsSecret }}
- name: postgres-tls
  mountPath: /etc/gpuledger/postgres-tls
  readOnly: true
{{- end }}
{{- end }}

{{/* libpq refuses a key that others may read; the pod's group may. */}}
{{- define "gpuledger.databaseTlsVolumes" -}}
{{- if .tlsSecret }}
- name: postgres-tls
  secret:
    secretName: {{ .tlsSecret }}
    defaultMode: 0440
    {{- if .brought }}
    items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
{{- end }}
{{- end }}

{{/*
The variables that name the servers. Call with (list $ "component" "Secret"), the latter being the one with the URLs that
are given.
*/}}
{{- define "gpuledger.serverEnv" -}}
{{- $root := index . 0 -}}
{{- $servers := $root.Values.servers -}}
{{- $own := printf "%s-%s" (include "gpuledger.fullname" $root) (include "gpuledger.role" (index . 1)) -}}
- name: NATS_URL
  valueFrom:
    {{- if include "gpuledger.bringsNats" $root }}
    secretKeyRef: {name: {{ $own }}, key: NATS_URL}
    {{- else }}
    secretKeyRef: {name: {{ index . 2 }}, key: {{ $servers.natsUrlKey }}}
    {{- end }}
- name: DATABASE_URL
  valueFrom:
    {{- if include "gpuledger.bringsPostgres" $root }}
    secretKeyRef: {name: {{ $own }}, key: DATABASE_URL}
    {{- else }}
    secretKeyRef: {name: {{ index . 2 }}, key: {{ $servers.databaseUrlKey }}}
    {{- end }}
{{- if include "gpuledger.bringsPostgres" $root }}
{{- if gt (int $root.Values.postgresql.replicas) 1 }}
- name: DATABASE_READ_URL
  valueFrom:
    secretKeyRef: {name: {{ $own }}, key: DATABASE_READ_URL}
{{- end }}
{{- else if or $servers.databaseReadUrl $servers.databaseReadUrlKey }}
- name: DATABASE_READ_URL
  valueFrom:
    secretKeyRef: {name: {{ index . 2 }}, key: {{ $servers.databaseReadUrlKey | default "DATABASE_READ_URL" }}}
{{- end }}
{{- end }}
