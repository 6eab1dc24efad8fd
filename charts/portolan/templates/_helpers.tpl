{{/* Labels of every object. Object names are fixed, because a cluster has one service proxy. */}}
{{- define "portolan.labels" -}}
app.kubernetes.io/name: portolan
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ include "portolan.ownLabels" . }}
{{- end }}
{{- end }}

{{/* Labels from values. The chart owns the labels that select pods, so those are rejected. */}}
{{- define "portolan.ownLabels" -}}
{{- range $name := keys . | sortAlpha }}
{{- if or (hasPrefix "app.kubernetes.io/" $name) (hasPrefix "proxy.portolan.dev/" $name) (eq $name "helm.sh/chart") }}
{{- fail (printf "label %s: the chart writes labels of app.kubernetes.io, proxy.portolan.dev and helm.sh/chart itself; use another name in commonLabels or podLabels" $name) }}
{{- end }}
{{- end }}
{{- toYaml . }}
{{- end }}

{{/* Annotations of an object: the common ones and its own. Empty if there are none. */}}
{{- define "portolan.annotations" -}}
{{- with merge (dict) (.own | default dict) (.root.Values.commonAnnotations | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of a component. Selectors are immutable, so these never change. */}}
{{- define "portolan.selector" -}}
app.kubernetes.io/name: portolan
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The image of a component: its own reference, or the one in the repository. */}}
{{- define "portolan.image" -}}
{{- $values := get .root.Values .values -}}
{{- if and $values.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $values.digest)) }}
{{- fail (printf "%s.digest: %s is not a digest; write sha256: and 64 hexadecimal digits, or the tag as image.tag" .values $values.digest) }}
{{- end -}}
{{- with $values.image }}{{ . }}{{ else -}}
{{- $missing := "image.repository is required, there is no default registry: build both images with `cargo lab image`, push them and pass --set image.repository=REGISTRY/PATH (images REGISTRY/PATH/portolan-controller and REGISTRY/PATH/portolan-agent)" -}}
{{- $image := $.root.Values.image -}}
{{- $path := printf "%s/portolan-%s" (required $missing $image.repository | trimSuffix "/") .component -}}
{{- $registry := ($.root.Values.global | default dict).imageRegistry | default $image.registry -}}
{{- with $registry }}{{ $path = printf "%s/%s" (trimSuffix "/" .) $path }}{{ end -}}
{{- $path }}:{{ $image.tag | default $.root.Chart.AppVersion }}{{ with $values.digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- define "portolan.apiServer" -}}
{{- $missing := "apiServer.host is required: the real address of the API server, such as --set apiServer.host=10.0.0.5, because its Service works only once Portolan serves it. `kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'` prints the URL that kubectl uses; write it without https:// and without the port, which is apiServer.port" -}}
{{- $host := required $missing .Values.apiServer.host | trimPrefix "[" | trimSuffix "]" -}}
{{- if regexMatch "[/ ]" $host }}
{{- fail (printf "apiServer.host: %s is not a host; write only the name or the address, such as 10.0.0.5, without https://, and the port as apiServer.port" $host) }}
{{- end }}
{{- if regexMatch "^[^:]*:[0-9]*$" $host }}
{{- fail (printf "apiServer.host: %s has a port; give it as apiServer.port, and only the name or the address as apiServer.host" $host) }}
{{- end }}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- printf "https://%s:%d" $host (int .Values.apiServer.port) -}}
{{- end }}

{{/* The listen address for agents. */}}
{{- define "portolan.bindAddress" -}}
{{- $address := .Values.controller.bindAddress -}}
{{- if not (regexMatch "^([0-9]+[.][0-9]+[.][0-9]+[.][0-9]+|[[][0-9A-Fa-f:.]+[]])$" $address) }}
{{- fail (printf "controller.bindAddress: %s is not an address; write an IPv4 address such as 0.0.0.0, or an IPv6 address in brackets such as \"[::]\"" $address) }}
{{- end }}
{{- $address -}}
{{- end }}

{{/* The receiver of traces. */}}
{{- define "portolan.tracesEndpoint" -}}
{{- $endpoint := .Values.controller.traces.endpoint -}}
{{- if not (regexMatch "^http://[^ /]+/?$" $endpoint) }}
{{- fail (printf "controller.traces.endpoint: %s is not http://HOST:PORT; name a receiver of OTLP/gRPC without TLS and without a path, such as http://10.0.0.7:4317" $endpoint) }}
{{- end }}
{{- $endpoint -}}
{{- end }}

{{- define "portolan.pullSecrets" -}}
{{- with concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.image.pullSecrets | default list) | uniq }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* The name of a component's service account. */}}
{{- define "portolan.account" -}}
{{- $account := (get .root.Values .values).serviceAccount -}}
{{- if and (not $account.create) (not $account.name) }}
{{- fail (printf "%s.serviceAccount.create is false: set %s.serviceAccount.name to an existing service account" .values .values) }}
{{- end }}
{{- $account.name | default (printf "portolan-%s" .component) -}}
{{- end }}

{{/* Labels and annotations of the pods of a component; `.values` are the values of the component. */}}
{{- define "portolan.podMetadata" -}}
labels:
  {{- include "portolan.selector" . | nindent 2 }}
  {{- with merge (dict) (.values.podLabels | default dict) (.root.Values.commonLabels | default dict) }}
  {{- include "portolan.ownLabels" . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where agents listen according to the ProxyConfig: port and, for a loopback address, host. Port 0 if agents do not
listen. `.name` is healthz or metrics, `.given` the port from `.value`. */}}
{{- define "portolan.listens" -}}
{{- $settings := dict -}}
{{- if .root.Values.config.create }}{{ $settings = .root.Values.config.spec.settings | default dict }}{{ end -}}
{{- $spec := get $settings .name | default dict -}}
{{- $address := ternary $spec.bindAddress .address (hasKey $spec "bindAddress") -}}
{{- $port := ternary $spec.port .port (hasKey $spec "port") | int -}}
{{- if eq $address "" }}{{ $port = 0 }}{{ end -}}
{{- if not (kindIs "invalid" .given) }}
{{- if and (hasKey $spec "port") (ne (int .given) $port) (ne (int .given) 0) }}
{{- fail (printf "%s is %d, and config.spec.settings.%s says %d: omit %s; it then follows config.spec.settings.%s.port" .value (int .given) .name $port .value .name) }}
{{- end }}
{{- $port = int .given }}
{{- end -}}
{{- $listens := dict "port" $port -}}
{{- if or (hasPrefix "127." $address) (eq $address "::1") }}{{ $listens = set $listens "host" $address }}{{ end -}}
{{- toJson $listens -}}
{{- end }}

{{- define "portolan.health" -}}
{{- include "portolan.listens" (dict "root" . "name" "healthz" "address" "::" "port" 10256 "given" .Values.agents.healthPort "value" "agents.healthPort") -}}
{{- end }}

{{- define "portolan.metrics" -}}
{{- include "portolan.listens" (dict "root" . "name" "metrics" "address" "127.0.0.1" "port" 10249 "given" .Values.agents.metricsPort "value" "agents.metricsPort") -}}
{{- end }}

{{/* Whether the controller may carry out changes in waves. `rollout: {}` enables waves, so an empty value counts. */}}
{{- define "portolan.waves" -}}
{{- $waves := .Values.rbac.waves -}}
{{- if kindIs "invalid" $waves -}}
{{- $spec := .Values.config.spec -}}
{{- $waves = or (not .Values.config.create) (and (hasKey $spec "rollout") (not (kindIs "invalid" $spec.rollout))) -}}
{{- end -}}
{{- if $waves }}true{{ end -}}
{{- end }}

{{/* Whether the controller creates its own certificate. */}}
{{- define "portolan.ownCertificate" -}}
{{- with .Values.tls }}
{{- if and .certificateSecret (not .caConfigMap) }}
{{- fail "tls.certificateSecret without tls.caConfigMap: agents need the certificate authority; name a ConfigMap with ca.crt" }}
{{- else if and .caConfigMap (not .certificateSecret) }}
{{- fail "tls.caConfigMap without tls.certificateSecret: name the Secret with the certificate, or omit both" }}
{{- end }}
{{- if not .certificateSecret }}true{{ end }}
{{- end }}
{{- end }}

{{/* The spec of the ProxyConfig from values, with the preset of the network plugin if localDetection is not set. */}}
{{- define "portolan.configSpec" -}}
{{- $presets := dict
  "node-cidr" (dict "mode" "NodeCIDR")
  "flannel" (dict "mode" "NodeCIDR")
  "kubenet" (dict "mode" "NodeCIDR")
  "kindnet" (dict "mode" "NodeCIDR")
  "calico" (dict "mode" "InterfaceNamePrefix" "prefix" "cali")
  "cilium" (dict "mode" "InterfaceNamePrefix" "prefix" "lxc")
  "aws-vpc" (dict "mode" "InterfaceNamePrefix" "prefix" "eni") }}
{{- $spec := deepCopy .Values.config.spec }}
{{- $settings := $spec.settings | default dict }}
{{- if and (eq .Values.cni "custom") (not (hasKey $settings "localDetection")) }}
{{- fail "cni is custom: set config.spec.settings.localDetection, by which a node recognizes its own pods (`kubectl explain proxyconfig.spec.settings.localDetection`)" }}
{{- end }}
{{- if and (hasKey $presets .Values.cni) (not (hasKey $settings "localDetection")) }}
{{- $settings = set $settings "localDetection" (get $presets .Values.cni) }}
{{- end }}
{{- if $settings }}{{ $spec = set $spec "settings" $settings }}{{ end }}
{{- toYaml $spec }}
{{- end }}

{{/* PodMonitors for unreachable addresses would only raise alerts. Unknown addresses are accepted. */}}
{{- define "portolan.canBeScraped" -}}
{{- if eq .Values.controller.adminAddress "127.0.0.1" }}
{{- fail "monitoring.podMonitors: Prometheus cannot reach controllers at 127.0.0.1; set controller.adminAddress=0.0.0.0 (or [::]) and restrict access to controller.adminPort with a firewall" }}
{{- end }}
{{- $metrics := include "portolan.metrics" . | fromJson }}
{{- if not $metrics.port }}
{{- fail "monitoring.podMonitors: agents have no metrics port; set agents.metricsPort or config.spec.settings.metrics" }}
{{- end }}
{{- if and .Values.config.create $metrics.host }}
{{- fail "monitoring.podMonitors: Prometheus cannot reach agents at a loopback address; set config.spec.settings.metrics.bindAddress=0.0.0.0 and restrict access to that port with a firewall" }}
{{- end }}
{{- end }}

{{/* For a ProxyConfig that an uninstall kept, helm itself only reports "cannot be imported". */}}
{{- define "portolan.mayOwnConfig" -}}
{{- $found := lookup "proxy.portolan.dev/v1alpha1" "ProxyConfig" "" "default" }}
{{- if and $found (not .Values.config.takeOwnership) }}
{{- $annotations := $found.metadata.annotations | default dict }}
{{- $release := get $annotations "meta.helm.sh/release-name" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" }}
{{- if or (ne $release .Release.Name) (ne $namespace .Release.Namespace) }}
{{- fail (printf "ProxyConfig default already exists, created by %s. To keep its settings: --set config.create=false. To replace them with config.spec: --take-ownership --set config.takeOwnership=true" (ternary (printf "release %s in namespace %s" $release $namespace) "the controller or by hand" (ne $release ""))) }}
{{- end }}
{{- end }}
{{- end }}
