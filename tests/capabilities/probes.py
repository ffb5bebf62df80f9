"""The probes of capabilities.py. Each probe uses the capability briefly and returns None, or the reason of the failure in one line."""

import contextlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
# Set when a test has restarted in its own namespaces.
ENTERED = "SLUICE_TEST_IN_NAMESPACES"
SYSTEM_PATH = ":/usr/sbin:/sbin"


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def try_command(command, **run_options):
    """Runs the command. Returns None for exit code 0, otherwise the last line of its output."""
    run_options.setdefault("env", os.environ | {"PATH": os.environ.get("PATH", "/usr/bin:/bin") + SYSTEM_PATH})
    try:
        done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace",
                              timeout=DEADLINE_S, check=False, **run_options)
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name}: no answer within {DEADLINE_S} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return None if done.returncode == 0 else last_line(done.stdout)


def programs(*names):
    path = os.environ.get("PATH", "/usr/bin:/bin") + SYSTEM_PATH
    return next((f"{name} is not installed" for name in names if not shutil.which(name, path=path)), None)


def root():
    return None if os.geteuid() == 0 else f"user {os.geteuid()} is not root"


def namespaces_reason():
    """Creates a test network of one host in the namespaces of this process. Returns None, or the reason of the failure."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); from test_network import unavailable_reason; sys.exit(unavailable_reason())"
    return try_command([sys.executable, "-B", "-c", script, ROOT / "bench/test_network"])


def namespace_entry():
    """Returns the prefix of a command line that lets the process create test networks; empty if no prefix is needed."""
    if os.environ.get(ENTERED) == "1" or programs("ip", "tc", "sysctl", "nsenter", "unshare"):
        return []
    if os.geteuid() == 0 and namespaces_reason() is None:
        return []
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    entry = ["unshare", *user, "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir -p /run/lock /run/netns && exec "$@"', "sh"]
    return entry if try_command([*entry, "true"]) is None else []


def network_namespaces():
    if reason := programs("ip", "tc", "sysctl", "nsenter", "unshare"):
        return reason
    entry = namespace_entry()
    if not entry:
        return namespaces_reason()
    script = "import sys; sys.path.insert(0, sys.argv[1]); import probes; sys.exit(probes.namespaces_reason())"
    return try_command([*entry, sys.executable, "-B", "-c", script, Path(__file__).parent])


def private_mounts():
    """Returns the prefix of a command that may mount, unseen by other processes. In a chroot, root can create no user namespace and cannot change the
    propagation of mounts."""
    entry = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]
    return entry if try_command([*entry, "true"]) is None else [*entry, "--propagation", "unchanged"]


def bind_mounts():
    """Bind-mounts a file over another one in a private mount namespace and checks that this process does not see it."""
    script = 'mount --bind "$1" "$2" || exit 1; ! [ "/proc/$3/root$2" -ef "$1" ] || { umount "$2"; echo "mounts of a namespace are visible outside of it"; exit 1; }'
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        one.touch()
        other.touch()
        return try_command([*namespace_entry(), "unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh", one, other, os.getpid()])


def debian_mirror():
    if reason := root() or programs("mmdebstrap", "apt-get"):
        return reason
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT)", "Created-By: Packages"], capture_output=True, text=True,
                          timeout=DEADLINE_S, check=False)
    if not release or not re.search(rf"^{release.group(1)}\S* main$", done.stdout, re.MULTILINE):
        return "apt has no package list of this Debian release; run apt-get update"
    return None


# Storage drivers for container images in order of preference: overlay does not work on every file system.
STORAGE_DRIVERS = ("overlay", "vfs")


def storage_settings(folder, driver):
    """Returns the environment of a buildah that stores its whole state in `folder`."""
    folder = Path(folder)
    (folder / "storage.conf").write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n', encoding="utf-8")
    return {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"), "BUILDAH_ISOLATION": "chroot", "XDG_RUNTIME_DIR": str(folder / "run"), "HOME": str(folder)}


def storage_reason(driver):
    """Commits an image with one file. Returns None, or the reason of the failure."""
    parent = ROOT / "build"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="buildah-probe-", ignore_cleanup_errors=True) as folder:
        Path(folder, "file").touch()
        script = ('set -e; made=$(buildah from scratch); buildah add --quiet "$made" "$1/file" /; '
                  'buildah commit --quiet --disable-compression "$made" localhost/probe; buildah rm --all')
        reason = try_command(["sh", "-c", script, "sh", folder], env=os.environ | storage_settings(folder, driver) | {"PATH": os.environ["PATH"] + SYSTEM_PATH})
        for point in sorted((line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()), reverse=True):
            if point.startswith(folder):
                subprocess.run(["umount", "-l", point], timeout=DEADLINE_S, check=False)
        return reason


def storage_driver():
    """Returns (driver, None), or (None, the reasons of all drivers)."""
    reasons = []
    for driver in STORAGE_DRIVERS:
        reason = storage_reason(driver)
        if reason is None:
            return driver, None
        reasons.append(f"{driver}: {reason}")
    return None, "; ".join(reasons)


def buildah():
    return root() or programs("buildah") or storage_driver()[1]


def rdma_guest():
    reason = try_command([ROOT / "tests/rdma/guest.sh", "--check"])
    return reason and reason.removeprefix("skipped: needs rdma-guest: ")


def pypi():
    """Creates a virtual environment and downloads a small package."""
    with tempfile.TemporaryDirectory() as folder:
        if reason := try_command([sys.executable, "-m", "venv", "--without-pip", Path(folder, "venv")]):
            return f"cannot create a virtual environment: {reason}"
        return try_command([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20", "download", "-q",
                            "--no-deps", "--no-cache-dir", "-d", folder, "six"])


def ipv6():
    with contextlib.closing(socket.socket(socket.AF_INET6)) if socket.has_ipv6 else contextlib.nullcontext() as probe:
        try:
            probe.bind(("::1", 0))
        except (OSError, AttributeError) as error:
            return f"cannot bind ::1: {error}"
    return None


@contextlib.contextmanager
def new_control_group(controller, limit):
    """Provides the folder of a new control group, in this process's group, with a limit of bytes (memory) or CPUs (cpu). v1 or v2."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines())
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        names = [name for name in groups if (name == "" if kind == "cgroup2" else controller in name.split(","))]
        if kind not in ("cgroup", "cgroup2") or not names or (kind == "cgroup" and controller not in options):
            continue
        parent = Path(fields[4], os.path.relpath(groups[names[0]], fields[3]))
        if kind == "cgroup2" and controller not in (parent / "cgroup.subtree_control").read_text(encoding="utf-8").split():
            continue
        folder = Path(tempfile.mkdtemp(prefix="sluice-test-", dir=parent))
        try:
            if controller == "memory":
                (folder / ("memory.max" if kind == "cgroup2" else "memory.limit_in_bytes")).write_text(str(limit), encoding="ascii")
            elif kind == "cgroup2":
                (folder / "cpu.max").write_text(f"{int(limit * 100000)} 100000", encoding="ascii")
            else:
                (folder / "cpu.cfs_quota_us").write_text(str(int(limit * 100000)), encoding="ascii")
            yield folder
        finally:
            folder.rmdir()
        return
    raise OSError(f"no hierarchy of control groups in which this process may limit {controller}")


def control_groups():
    try:
        for controller, limit in (("memory", 1 << 30), ("cpu", 1)):
            with new_control_group(controller, limit):
                pass
    except OSError as error:
        return str(error)
    return None


def callgrind():
    if platform.machine() != "x86_64":
        return f"the instruction limits are for x86_64; this machine is {platform.machine()}"
    return programs("valgrind")
