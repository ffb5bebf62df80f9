"""What schemas cannot know of our manifests: names that must meet, ports that must be equal, options that the program must have. Each rule takes the objects of
one kustomization and returns lines on what is wrong."""

import re

SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}
BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

# What every reducer of a cluster must be told.
NEEDED = {"SLUICE_LISTEN", "SLUICE_HTTP_LISTEN", "SLUICE_KEY_FILE", "SLUICE_MEMORY_LIMIT"}


def of_kind(objects, *kinds):
    return [thing for thing in objects if thing["kind"] in kinds]


def pods(thing, where=""):
    """(where, labels, pod's spec, its workload's spec) of every pod that an object makes: of any kind, custom ones included."""
    found = []
    if isinstance(thing, dict):
        if thing.get("kind") == "Pod":
            return [("Pod " + thing["metadata"]["name"], thing["metadata"].get("labels", {}), thing["spec"], {})]
        where = where or f"{thing.get('kind', '')} {thing.get('metadata', {}).get('name', '')}"
        template = thing.get("template")
        if isinstance(template, dict) and "containers" in template.get("spec", {}):
            return [(where, template.get("metadata", {}).get("labels", {}), template["spec"], thing)]
        for key, value in thing.items():
            inner = f"{where} {thing['name']}" if "name" in thing and key == "template" else where
            found += pods(value, inner)
    elif isinstance(thing, list):
        for value in thing:
            found += pods(value, where)
    return found


def all_pods(objects):
    return [pod for thing in objects for pod in pods(thing)]


def is_reducer(container):
    return container.get("image", "").split(":")[0].rsplit("/", 1)[-1] == "sluice-reducer"


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


def variables(container, objects):
    """Its variables, those of ConfigMaps included; one that the cluster fills in is None."""
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


def names_meet(objects):
    """Labels, Services, ConfigMaps and volumes are there under the names by which others ask for them."""
    problems = []
    configs = {thing["metadata"]["name"] for thing in of_kind(objects, "ConfigMap")}
    services = {thing["metadata"]["name"] for thing in of_kind(objects, "Service")}
    made = all_pods(objects)
    for where, labels, spec, workload in made:
        selector = workload.get("selector", {}).get("matchLabels", {})
        if not selector.items() <= labels.items():
            problems.append(f"{where}: its selector does not select its pods")
        if "serviceName" in workload and workload["serviceName"] not in services:
            problems.append(f"{where}: there is no Service {workload['serviceName']}")
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        used = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
        for name in volumes ^ used:
            problems.append(f"{where}: volume {name} is {'not mounted' if name in volumes else 'mounted and not there'}")
        for container in containers(spec):
            for source in container.get("envFrom", []):
                if source["configMapRef"]["name"] not in configs:
                    problems.append(f"{where}: there is no ConfigMap {source['configMapRef']['name']}")
    for thing in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = thing["spec"]
        selector = spec.get("podSelector", spec.get("selector", {}))
        selector = selector.get("matchLabels", selector)
        if not selector or not any(selector.items() <= labels.items() for _, labels, _, _ in made):
            problems.append(f"{thing['kind']} {thing['metadata']['name']}: it selects no pods")
    return problems


def ports_meet(objects):
    """A port is one number wherever it stands, and a name that somebody uses is a container's."""
    problems = []
    named = {}
    for where, _, spec, _ in all_pods(objects):
        for container in containers(spec):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            named.update(ports)
            for key in ("startupProbe", "livenessProbe", "readinessProbe"):
                port = container.get(key, {}).get("httpGet", {}).get("port")
                if port is not None and port not in ports:
                    problems.append(f"{where}: {key} asks port {port}, which the container does not name")
            told = variables(container, objects)
            if is_reducer(container) and NEEDED <= told.keys():
                listens = {"data": port_of(told["SLUICE_LISTEN"]), "http": port_of(told["SLUICE_HTTP_LISTEN"])}
                if listens != ports:
                    problems.append(f"{where}: it listens on {listens} and names {ports}")
    for service in of_kind(objects, "Service"):
        for port in service["spec"]["ports"]:
            if named.get(port["targetPort"]) != port["port"] or port["name"] != port["targetPort"]:
                problems.append(f"Service {service['metadata']['name']}: port {port} is no container's")
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            problems += [f"NetworkPolicy {policy['metadata']['name']}: port {port['port']} is no container's"
                         for port in rule.get("ports", []) if port["port"] not in named]
    return problems


def reducers_fit(objects, drain_default):
    """What a reducer is told fits into what its pod has. `drain_default`: seconds."""
    problems = []
    for where, _, spec, _ in all_pods(objects):
        for container in filter(is_reducer, spec["containers"]):
            told, resources = variables(container, objects), container["resources"]
            if missing := NEEDED - told.keys():
                problems.append(f"{where}: {container['name']} is not told {', '.join(sorted(missing))}")
                continue
            drain = seconds(told["SLUICE_DRAIN_TIMEOUT"]) if "SLUICE_DRAIN_TIMEOUT" in told else drain_default
            if spec.get("terminationGracePeriodSeconds", 30) <= drain:
                problems.append(f"{where}: it may drain for {drain:g} s and is killed after {spec.get('terminationGracePeriodSeconds', 30)} s")
            limit = size(resources["limits"]["memory"])
            if size(told["SLUICE_MEMORY_LIMIT"]) > 0.8 * limit:
                problems.append(f"{where}: SLUICE_MEMORY_LIMIT leaves too little of {limit} bytes")
            for what in ("cpu", "memory"):
                if resources["requests"][what] != resources["limits"][what]:
                    problems.append(f"{where}: request and limit of {what} differ")
            if not resources["limits"]["cpu"].isdigit():
                problems.append(f"{where}: CPUs are not whole")
            mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
            if told["SLUICE_KEY_FILE"].rsplit("/", 1)[0] not in mounts:
                problems.append(f"{where}: nothing is mounted where {told['SLUICE_KEY_FILE']} should be")
    return problems


def known_words(objects, reducer, plugin, nccl_conf):
    """Every SLUICE_ variable and NCCL_ line is one that its reader has. `reducer`, `plugin`: variables that they know; `nccl_conf`: lines that a worker needs."""
    problems = []
    for where, _, spec, _ in all_pods(objects):
        for container in spec["containers"]:
            told = variables(container, objects)
            known = reducer if is_reducer(container) else plugin
            for name in told:
                if name.startswith("SLUICE_") and name not in known:
                    problems.append(f"{where}: {container['name']} has no variable {name}")
            if "SLUICE_REDUCER_POD_PATTERN" in told:
                for name, value in nccl_conf.items():
                    if name == "NCCL_NET_PLUGIN":
                        value = f"/opt/sluice/lib/libnccl-net-{value}.so"
                    if told.get(name) != value:
                        problems.append(f"{where}: {name} is {told.get(name)}, a worker needs {value}")
    return problems


def keys_can_be_read(objects):
    """A Secret's files are root's: who mounts one is root, or the pod has a group for them and the files let it read."""
    problems = []
    for where, _, spec, _ in all_pods(objects):
        secrets = {volume["name"]: volume["secret"] for volume in spec.get("volumes", []) if "secret" in volume}
        whole = spec.get("securityContext", {})
        for container in containers(spec):
            user = container.get("securityContext", {}).get("runAsUser", whole.get("runAsUser"))
            for mount in container.get("volumeMounts", []):
                # Without defaultMode it is 0644.
                readable = "fsGroup" in whole and secrets.get(mount["name"], {}).get("defaultMode", 0o644) & 0o040
                if mount["name"] in secrets and user != 0 and not readable:
                    problems.append(f"{where}: {container['name']} cannot read {mount['mountPath']}")
    return problems


def least_rights(objects):
    """No pod of ours has more rights than it needs, and reducers are one a node."""
    problems = []
    for where, labels, spec, _ in all_pods(objects):
        for container in filter(is_reducer, containers(spec)):
            rights = container.get("securityContext", {})
            added = rights.get("capabilities", {}).get("add", [])
            whole = {**spec.get("securityContext", {}), **rights}
            good = rights.get("allowPrivilegeEscalation") is False and rights.get("readOnlyRootFilesystem") is True \
                and rights.get("capabilities", {}).get("drop") == ["ALL"] and whole.get("seccompProfile") == {"type": "RuntimeDefault"}
            if not good or added not in ([], ["IPC_LOCK"]) or whole.get("runAsNonRoot") is not True and not added:
                problems.append(f"{where}: {container['name']} may do too much")
            terms = spec.get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
            if not any(term["topologyKey"] == "kubernetes.io/hostname" and term["labelSelector"]["matchLabels"].items() <= labels.items() for term in terms):
                problems.append(f"{where}: two reducers may come to one node")
            if spec.get("enableServiceLinks") is not False:
                problems.append(f"{where}: a Service's variables may be taken for options")
    for thing in of_kind(objects, "DaemonSet"):
        spec = thing["spec"]["template"]["spec"]
        if spec.get("hostPID") or spec.get("hostNetwork") or any(c.get("securityContext", {}).get("privileged") for c in containers(spec)):
            problems.append(f"DaemonSet {thing['metadata']['name']}: it is privileged")
    return problems


def reducers_found(objects, pool_replicas, discover):
    """What a worker finds are the reducers that are made, each by its name in DNS. `pool_replicas`: of the StatefulSet that workers without reducers of their own go
    to; `discover`: from variables to the list that the program makes of them."""
    problems = []
    jobs = {}
    for thing in objects:
        spec = thing.get("spec", {})
        for job in spec.get("replicatedJobs", spec.get("template", {}).get("spec", {}).get("replicatedJobs", [])):
            jobs[job["name"]] = job["template"]["spec"]
    for where, _, spec, _ in all_pods(objects):
        for container in spec["containers"]:
            told = variables(container, objects)
            if "SLUICE_REDUCER_POD_PATTERN" not in told:
                continue
            if jobs:
                wanted = [f"js-reducers-0-{i}.js:7470" for i in range(jobs["reducers"]["completions"])]
            else:
                wanted = [f"sluice-reducer-{i}.sluice-reducer:7470" for i in range(pool_replicas)]
            # As the kubelet puts other variables in.
            found = discover({name: value.replace("$(JOBSET)", "js") for name, value in told.items() if name.startswith("SLUICE_") and value is not None})
            if found != wanted:
                problems.append(f"{where}: a worker finds {found}, the reducers are {wanted}")
    return problems
