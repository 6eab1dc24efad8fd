{{/* Runs a command of the agent once on each of its nodes, with a Job that waits for all of them. `.name` names the objects,
`.hook` is the helm hook, `.command` the arguments of portolan-agent, `.securityContext` that of its container, `.tries` how
often it may fail on a node, `.timeout` the limit for all nodes in seconds. */}}
{{- define "portolan.eachNode" -}}
{{- $root := .root }}
{{- $namespace := $root.Release.Namespace }}
{{- $object := printf "portolan-%s" .name }}
{{- $agent := include "portolan.image" (dict "root" $root "values" "agents" "component" "agent") }}
{{- $hook := dict "helm.sh/hook" .hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
{{- $before := merge (dict "helm.sh/hook-weight" "-10") $hook }}
{{- $labels := include "portolan.labels" $root }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $object }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
  {{- include "portolan.annotations" (dict "root" $root "own" $before) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $object }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
  {{- include "portolan.annotations" (dict "root" $root "own" $before) }}
rules:
- apiGroups: [apps]
  resources: [daemonsets]
  resourceNames: [{{ $object }}]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $object }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
  {{- include "portolan.annotations" (dict "root" $root "own" $before) }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $object }}}
subjects:
- {kind: ServiceAccount, name: {{ $object }}, namespace: {{ $namespace }}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $object }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
  {{- include "portolan.annotations" (dict "root" $root "own" (merge (dict "helm.sh/hook-weight" "0") $hook)) }}
spec:
  selector:
    matchLabels:
      {{- include "portolan.selector" (dict "component" .name) | nindent 6 }}
  template:
    metadata:
      {{- include "portolan.podMetadata" (dict "root" $root "values" $root.Values.agents "component" .name) | nindent 6 }}
    spec:
      automountServiceAccountToken: false
      {{- with $root.Values.agents.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      hostNetwork: true
      dnsPolicy: Default
      enableServiceLinks: false
      terminationGracePeriodSeconds: 1
      {{- with include "portolan.pullSecrets" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      nodeSelector:
        {{- toYaml $root.Values.agents.nodeSelector | nindent 8 }}
      tolerations:
        {{- toYaml $root.Values.agents.tolerations | nindent 8 }}
      {{- with $root.Values.agents.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.agents.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      initContainers:
      - name: once
        image: {{ $agent }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        command: {{ concat (list "portolan-agent") .command | toJson }}
        env:
        - name: PORTOLAN_NODE
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        # If it fails, the pod status shows the last lines of its log.
        terminationMessagePolicy: FallbackToLogsOnError
        securityContext:
          {{- toYaml .securityContext | nindent 10 }}
        volumeMounts:
        - {name: state, mountPath: {{ $root.Values.agents.stateDir }}}
        - {name: modules, mountPath: /lib/modules, readOnly: true}
        - {name: lock, mountPath: /run/xtables.lock}
      containers:
      # Keeps the pod running, so that the DaemonSet does not run the command again on its node.
      - name: hold
        image: {{ $agent }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        command: [portolan-agent, hold]
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
      volumes:
      - name: state
        hostPath: {path: {{ $root.Values.agents.stateDir }}, type: DirectoryOrCreate}
      - name: modules
        hostPath: {path: /lib/modules}
      - name: lock
        hostPath: {path: /run/xtables.lock, type: FileOrCreate}
---
{{- $job := merge (dict "helm.sh/hook-weight" "5") $hook }}
{{- $words := list "each-node" (printf "--namespace=%s" $namespace) (printf "--daemonset=%s" $object) (printf "--tries=%d" (int .tries)) }}
{{ include "portolan.waitingJob" (dict "root" $root "name" $object "account" $object "annotations" $job "words" $words "timeout" .timeout) }}
{{- end }}

{{/* A Job that polls the API server until a condition holds. */}}
{{- define "portolan.waitingJob" -}}
{{- $root := .root }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "portolan.labels" $root | nindent 4 }}
  {{- include "portolan.annotations" (dict "root" $root "own" .annotations) }}
spec:
  backoffLimit: 0
  template:
    metadata:
      labels:
        {{- include "portolan.selector" (dict "component" "installation") | nindent 8 }}
    spec:
      serviceAccountName: {{ .account }}
      restartPolicy: Never
      # It must run while no Service works.
      hostNetwork: true
      dnsPolicy: Default
      enableServiceLinks: false
      {{- with include "portolan.pullSecrets" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $root.Values.controller.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      tolerations:
      - {operator: Exists}
      {{- with $root.Values.controller.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
      - name: wait
        image: {{ include "portolan.image" (dict "root" $root "values" "controller" "component" "controller") }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        command: [portolan-controller]
        args:
        - installation
        - --api-server={{ include "portolan.apiServer" $root }}
        - --timeout={{ int .timeout }}
        {{- toYaml .words | nindent 8 }}
        terminationMessagePolicy: FallbackToLogsOnError
        securityContext:
          {{- toYaml $root.Values.controller.securityContext | nindent 10 }}
{{- end }}
