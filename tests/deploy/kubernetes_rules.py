"""Rules for the manifests that schemas cannot check: references by name, equal ports, existing options.

Each rule gets the objects of one kustomization and yields its problems.
"""

import re

SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}
BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

# Variables that each reducer of a cluster must have.
REQUIRED = {"SLUICE_LISTEN", "SLUICE_HTTP_LISTEN", "SLUICE_KEY_FILE", "SLUICE_MEMORY_LIMIT"}


def of_kind(objects, *kinds):
    return [item for item in objects if item["kind"] in kinds]


def pods(node, where="", labels=None):
    """Returns (where, labels, pod spec, workload spec) of each pod that an object creates. Works for all kinds, also custom
    ones. `labels` are those that the controllers of JobSet add."""
    found, labels = [], labels or {}
    if isinstance(node, dict):
        if node.get("kind") == "Pod":
            return [("Pod " + node["metadata"]["name"], node["metadata"].get("labels", {}), node["spec"], {})]
        where = where or f"{node.get('kind', '')} {node.get('metadata', {}).get('name', '')}"
        template = node.get("template")
        if isinstance(template, dict) and "containers" in template.get("spec", {}):
            return [(where, {**template.get("metadata", {}).get("labels", {}), **labels}, template["spec"], node)]
        for key, value in node.items():
            if "name" in node and key == "template":
                found += pods(value, f"{where} {node['name']}", {**labels, "jobset.sigs.k8s.io/replicatedjob-name": node["name"]})
            else:
                found += pods(value, where, labels)
    elif isinstance(node, list):
        for value in node:
            found += pods(value, where, labels)
    return found


def all_pods(objects):
    # A TrainJob creates a JobSet with its name from its runtime.
    names = [item["metadata"]["name"] for item in of_kind(objects, "JobSet", "TrainJob")]
    return [pod for item in objects for pod in pods(item, labels={"jobset.sigs.k8s.io/jobset-name": name for name in names})]


def is_reducer(container):
    return container.get("image", "").split(":")[0].rsplit("/", 1)[-1] == "sluice-reducer"


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


def variables(container, objects):
    """Returns the environment variables of a container, including those of ConfigMaps. A variable that the cluster sets is None."""
    found = {}
    for source in container.get("envFrom", []):
        for config in of_kind(objects, "ConfigMap"):
            if config["metadata"]["name"] == source["configMapRef"]["name"]:
                found.update(config["data"])
    found.update({entry["name"]: entry.get("value") for entry in container.get("env", [])})
    return found


def seconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|h)", text).groups()
    return float(number) * SECONDS[unit]


def size(text):
    number, unit = re.fullmatch(r"(\d+)([KMG]i?)?", text).groups()
    return int(number) * BINARY[unit or ""]


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def check_references(objects):
    """Referenced labels, Services, ConfigMaps and volumes exist."""
    configs = {item["metadata"]["name"] for item in of_kind(objects, "ConfigMap")}
    services = {item["metadata"]["name"] for item in of_kind(objects, "Service")}
    all_of_them = all_pods(objects)
    for where, labels, spec, workload in all_of_them:
        selector = workload.get("selector", {}).get("matchLabels", {})
        if not selector.items() <= labels.items():
            yield f"{where}: the selector does not select its pods"
        if "serviceName" in workload and workload["serviceName"] not in services:
            yield f"{where}: there is no Service {workload['serviceName']}"
        volumes = {volume["name"] for volume in spec.get("volumes", [])} | {claim["metadata"]["name"] for claim in workload.get("volumeClaimTemplates", [])}
        used = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
        for name in volumes ^ used:
            yield f"{where}: volume {name} is {'not mounted' if name in volumes else 'mounted but missing'}"
        for container in containers(spec):
            for source in container.get("envFrom", []):
                if source["configMapRef"]["name"] not in configs:
                    yield f"{where}: there is no ConfigMap {source['configMapRef']['name']}"
    for item in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"):
        spec = item["spec"]
        selector = spec.get("podSelector", spec.get("selector", {}))
        selector = selector.get("matchLabels", selector)
        if not selector or not any(selector.items() <= labels.items() for _, labels, _, _ in all_of_them):
            yield f"{item['kind']} {item['metadata']['name']}: selects no pods"


def check_ports(objects):
    """All objects use the same number for a port, and each referenced port name is a port of a container."""
    named = {}
    for where, _, spec, _ in all_pods(objects):
        for container in containers(spec):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            named.update(ports)
            for key in ("startupProbe", "livenessProbe", "readinessProbe"):
                port = container.get(key, {}).get("httpGet", {}).get("port")
                if port is not None and port not in ports:
                    yield f"{where}: {key} uses port {port}, which is not a port of the container"
            env = variables(container, objects)
            if is_reducer(container) and REQUIRED <= env.keys():
                listens = {"data": port_of(env["SLUICE_LISTEN"]), "http": port_of(env["SLUICE_HTTP_LISTEN"])}
                if listens != ports:
                    yield f"{where}: the reducer listens on {listens}, but the container has the ports {ports}"
            permitted = {port["port"] for policy in of_kind(objects, "NetworkPolicy") for rule in policy["spec"].get("egress", []) for port in rule.get("ports", [])}
            etcd = {int((re.search(r":(\d+)$", item) or {1: 2379})[1]) for item in (env.get("SLUICE_COORDINATOR") or "").split(",")}
            if env.get("SLUICE_COORDINATOR") and permitted and not etcd <= permitted:
                yield f"{where}: no NetworkPolicy permits the ports of {env['SLUICE_COORDINATOR']}"
    for service in of_kind(objects, "Service"):
        for port in service["spec"]["ports"]:
            if named.get(port["targetPort"]) != port["port"] or port["name"] != port["targetPort"]:
                yield f"Service {service['metadata']['name']}: port {port} is not a port of a container"
    for monitor in of_kind(objects, "PodMonitor"):
        yield from [f"PodMonitor {monitor['metadata']['name']}: port {endpoint['port']} is not a port of a container"
                    for endpoint in monitor["spec"]["podMetricsEndpoints"] if endpoint["port"] not in named]
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            yield from [f"NetworkPolicy {policy['metadata']['name']}: port {port['port']} is not a port of a container"
                         for port in rule.get("ports", []) if port["port"] not in named]


def check_reducer_resources(objects, drain_default):
    """The options of a reducer match the resources of its pod. `drain_default` is in seconds."""
    for where, _, spec, _ in all_pods(objects):
        for container in filter(is_reducer, spec["containers"]):
            env, resources = variables(container, objects), container["resources"]
            if missing := REQUIRED - env.keys():
                yield f"{where}: {container['name']} has no {', '.join(sorted(missing))}"
                continue
            drain = seconds(env["SLUICE_DRAIN_TIMEOUT"]) if "SLUICE_DRAIN_TIMEOUT" in env else drain_default
            if spec.get("terminationGracePeriodSeconds", 30) <= drain:
                yield f"{where}: the reducer may drain for {drain:g} s, but is killed after {spec.get('terminationGracePeriodSeconds', 30)} s"
            limit = size(resources["limits"]["memory"])
            if size(env["SLUICE_MEMORY_LIMIT"]) + size(env.get("SLUICE_STATE_MEMORY", "0")) > 0.8 * limit:
                yield f"{where}: SLUICE_MEMORY_LIMIT leaves too little of {limit} bytes"
            if "SLUICE_STATE" in env and "SLUICE_STATE_MEMORY" not in env:
                yield f"{where}: the memory of models has no limit"
            if spec.get("restartPolicy", "Always") != "Always" and env.get("SLUICE_DRAIN_EXIT_CODE", "0") == "0":
                yield f"{where}: a reducer that drains counts as completed"
            for resource in ("cpu", "memory"):
                if resources["requests"][resource] != resources["limits"][resource]:
                    yield f"{where}: request and limit of {resource} differ"
            if not resources["limits"]["cpu"].isdigit():
                yield f"{where}: the number of CPUs is not an integer"
            mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
            if env["SLUICE_KEY_FILE"].rsplit("/", 1)[0] not in mounts:
                yield f"{where}: no volume contains {env['SLUICE_KEY_FILE']}"


def check_variables(objects, reducer, plugin, nccl_conf):
    """The programs know all variables SLUICE_*, and workers have the variables of nccl.conf. `reducer` and `plugin` are the
    variables that these programs know."""
    for where, _, spec, _ in all_pods(objects):
        for container in spec["containers"]:
            env = variables(container, objects)
            known = reducer if is_reducer(container) else plugin
            for name in env:
                if name.startswith("SLUICE_") and name not in known:
                    yield f"{where}: {container['name']} has no variable {name}"
            if "SLUICE_REDUCER_POD_PATTERN" in env:
                for name, value in nccl_conf.items():
                    if name == "NCCL_NET_PLUGIN":
                        value = f"/opt/sluice/lib/libnccl-net-{value}.so"
                    if env.get(name) != value:
                        yield f"{where}: {name} is {env.get(name)}, but a worker needs {value}"


def check_key_access(objects):
    """Containers can read the files of their Secrets. Root owns these files. Other users need fsGroup and the read permission of
    the group."""
    for where, _, spec, _ in all_pods(objects):
        secrets = {volume["name"]: volume["secret"] for volume in spec.get("volumes", []) if "secret" in volume}
        pod_context = spec.get("securityContext", {})
        for container in containers(spec):
            user = container.get("securityContext", {}).get("runAsUser", pod_context.get("runAsUser"))
            for mount in container.get("volumeMounts", []):
                # The default mode is 0644.
                readable = "fsGroup" in pod_context and secrets.get(mount["name"], {}).get("defaultMode", 0o644) & 0o040
                if mount["name"] in secrets and user != 0 and not readable:
                    yield f"{where}: {container['name']} cannot read {mount['mountPath']}"


def check_worker_secrets(objects):
    """Only reducers have the pool key. Workers have the token of their job."""
    for where, _, spec, _ in all_pods(objects):
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in spec.get("volumes", []) if "secret" in volume}
        for container in containers(spec):
            env, mounts = variables(container, objects), {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
            if is_reducer(container):
                continue
            if "SLUICE_KEY_FILE" in env or "sluice-pool-key" in [secrets.get(name) for name in mounts.values()]:
                yield f"{where}: {container['name']} has the pool key"
            if "SLUICE_REDUCER_POD_PATTERN" in env:
                if secrets.get(mounts.get(env.get("SLUICE_TOKEN_FILE", "/").rsplit("/", 1)[0])) != "sluice-job-token" or "SLUICE_JOB" not in env:
                    yield f"{where}: {container['name']} has no token"


def check_disruption_budgets(objects):
    """One budget limits the evictions of each set of reducers to one at a time."""
    budgets = [item["spec"] for item in of_kind(objects, "PodDisruptionBudget")]
    for where, labels, spec, workload in all_pods(objects):
        if not any(map(is_reducer, spec["containers"])):
            continue
        own = [budget for budget in budgets if budget["selector"]["matchLabels"].items() <= labels.items()]
        # Pods of Jobs have no controller with a scale, so Kubernetes cannot compute maxUnavailable for them.
        expected = {"minAvailable": workload["completions"] - 1} if "completions" in workload else {"maxUnavailable": 1}
        if [{key: value for key, value in budget.items() if key.startswith("m")} for budget in own] != [expected]:
            yield f"{where}: expected one PodDisruptionBudget with {expected}, found {own}"


def check_privileges(objects):
    """Containers have only the privileges that they need, and a node has at most one reducer."""
    for where, labels, spec, _ in all_pods(objects):
        for container in filter(is_reducer, containers(spec)):
            context = container.get("securityContext", {})
            added = context.get("capabilities", {}).get("add", [])
            effective = {**spec.get("securityContext", {}), **context}
            is_restricted = context.get("allowPrivilegeEscalation") is False and context.get("readOnlyRootFilesystem") is True \
                and context.get("capabilities", {}).get("drop") == ["ALL"] and effective.get("seccompProfile") == {"type": "RuntimeDefault"}
            if not is_restricted or added not in ([], ["IPC_LOCK"]) or effective.get("runAsNonRoot") is not True and not added:
                yield f"{where}: {container['name']} has too many privileges"
            terms = spec.get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
            if not any(term["topologyKey"] == "kubernetes.io/hostname" and term["labelSelector"]["matchLabels"].items() <= labels.items() for term in terms):
                yield f"{where}: two reducers can run on one node"
            if spec.get("enableServiceLinks") is not False:
                yield f"{where}: variables of a Service could be read as options"
    for item in of_kind(objects, "DaemonSet"):
        spec = item["spec"]["template"]["spec"]
        if spec.get("hostPID") or spec.get("hostNetwork") or any(c.get("securityContext", {}).get("privileged") for c in containers(spec)):
            yield f"DaemonSet {item['metadata']['name']}: is privileged"


def check_discovery(objects, pool_replicas, discover):
    """Workers discover exactly the DNS names of the reducers. `pool_replicas` is the size of the pool for workers without their
    own reducers. `discover` returns the list of reducers that the program derives from variables."""
    jobs = {}
    for item in objects:
        spec = item.get("spec", {})
        for job in spec.get("replicatedJobs", spec.get("template", {}).get("spec", {}).get("replicatedJobs", [])):
            jobs[job["name"]] = job["template"]["spec"]
    for where, _, spec, _ in all_pods(objects):
        for container in spec["containers"]:
            env = variables(container, objects)
            if "SLUICE_REDUCER_POD_PATTERN" not in env:
                continue
            if jobs:
                expected = [f"js-reducers-0-{i}.js:7470" for i in range(jobs["reducers"]["completions"])]
            else:
                expected = [f"sluice-reducer-{i}.sluice-reducer:7470" for i in range(pool_replicas)]
            # Replaces references to other variables like the kubelet.
            found = discover({name: value.replace("$(JOBSET)", "js") for name, value in env.items() if name.startswith("SLUICE_") and value is not None})
            if found != expected:
                yield f"{where}: a worker finds {found}, but the reducers are {expected}"
