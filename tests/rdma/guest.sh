#!/bin/bash
# guest.sh: runs a command in a temporary QEMU guest with soft-RoCE (rdma_rxe) devices, so that
# libibverbs code can be tested on a machine whose kernel has no InfiniBand support.
#
#   guest.sh [-c CORES] [-m MB] [-r RAILS] [-n dummy|pair]
#            [-l] [-t S] [-a auto|kvm|tcg] [-k VERSION] [-v] [--check] -- COMMAND [ARG...]
#
#   -c, --cores N     guest CPUs                    (default: host's, at most 4)
#   -m, --mem MB      guest memory                  (default 2048)
#   -r, --rails N     rails, numbered from 0        (default 2)
#   -n, --net KIND    dummy: one device per rail: rxe<i> on netdev rail<i>, with the
#                     addresses 10.77.<i>.1 and .2; traffic loops back inside rxe
#                     (default; fastest)
#                     pair: two per rail, wired together: rxe<i>a on rail<i>a has
#                     10.77.<i>.1, rxe<i>b on rail<i>b has 10.77.<i>.2; packets do
#                     cross a veth, so tc netem and ip link down act on them
#   -l, --loopback    also a device on lo, rxelo, for programs that connect over 127.0.0.1 or
#                     ::1
#   -t, --timeout S   kill the guest after S seconds of wall time (default 300)
#   -a, --accel KIND  auto: kvm if the CPU has svm/vmx and /dev/kvm opens, else tcg
#   -k, --kernel VER  kernel version under /boot and /lib/modules (default: newest
#                     that has rdma_rxe)
#   -v, --verbose     guest kernel messages and timings to stderr
#       --check       only report whether a guest can be started (exit status 0 or 77)
#
# The guest mounts the host's file system read-only (9p) under a temporary RAM overlay, so COMMAND,
# its libraries and its data are those of the host. COMMAND runs as root, in the same working
# directory and with the same exported environment.
# Exit status: that of COMMAND; 124 timeout; 125 the guest failed; 77 (skip) no guest could be
# started, or qemu, a kernel, a module or a tool is missing.
set -u
me=${0##*/}
say()  { printf '%s: %s\n' "$me" "$*" >&2; }
die()  { say "$2"; exit "$1"; }
usage(){ sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; }

cores=$(nproc); ((cores > 4)) && cores=4
mem=2048 rails=2 net=dummy loopback=0 limit=300 accel=auto kver='' verbose=0 check=0
while (($#)); do
    case $1 in
        -c|--cores)   cores=$2; shift 2 ;;
        -m|--mem)     mem=$2; shift 2 ;;
        -r|--rails)   rails=$2; shift 2 ;;
        -n|--net)     net=$2; shift 2 ;;
        -l|--loopback) loopback=1; shift ;;
        -t|--timeout) limit=$2; shift 2 ;;
        -a|--accel)   accel=$2; shift 2 ;;
        -k|--kernel)  kver=$2; shift 2 ;;
        -v|--verbose) verbose=1; shift ;;
        --check)      check=1; shift ;;
        -h|--help)    usage; exit 0 ;;
        --)           shift; break ;;
        -*)           die 2 "unknown option $1 (see --help)" ;;
        *)            break ;;
    esac
done
[[ $net == dummy || $net == pair ]] || die 2 "--net: expected dummy or pair, found '$net'"
(($# || check)) || { usage >&2; exit 2; }

# --- requirements -------------------------------------------------------------
missing=() pkgs=()
need() { command -v "$1" >/dev/null 2>&1 || { missing+=("$1"); pkgs+=("$2"); }; }
PATH=$PATH:/usr/sbin:/sbin
need qemu-system-x86_64 qemu-system-x86
need busybox  busybox-static
need cpio     cpio
need modprobe kmod
need ip       iproute2
need rdma     iproute2
need xz       xz-utils
need timeout  coreutils
if command -v busybox >/dev/null; then
    bb=$(command -v busybox)
    # a dynamically linked busybox cannot run in the initramfs
    if ldd "$bb" >/dev/null 2>&1; then missing+=("a static busybox"); pkgs+=(busybox-static); fi
fi
if [[ -z $kver ]]; then
    for d in $(compgen -G '/lib/modules/*/' | sort -Vr); do
        v=$(basename "$d")
        if [[ -r /boot/vmlinuz-$v ]] && compgen -G "$d/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null
        then kver=$v; break; fi
    done
fi
if [[ -z $kver || ! -r /boot/vmlinuz-$kver ]] ||
   ! compgen -G "/lib/modules/$kver/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*" >/dev/null; then
    missing+=("a kernel ${kver:+$kver }with rdma_rxe in /boot and /lib/modules")
    pkgs+=(linux-image-amd64)      # the -cloud- kernel has no InfiniBand
fi
if ((${#missing[@]})); then
    say "missing: $(IFS=,; echo "${missing[*]}")"
    list=' '
    for p in "${pkgs[@]}"; do [[ $list == *" $p "* ]] || list+="$p "; done
    say "on Debian: apt-get install${list% }"
    echo "skipped: needs rdma-guest: missing $(IFS=,; echo "${missing[*]}")" >&2
    exit 77
fi

# Puts the real Python interpreter first in PATH: the shim of a version manager takes seconds in emulation.
if interpreter=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null); then export PATH=${interpreter%/*}:$PATH; fi

# Uses KVM only if the CPU has the virtualization extension: a /dev/kvm without svm or vmx (for
# example PVM) interprets a stock kernel one instruction at a time.
if [[ $accel == auto ]]; then
    if [[ -r /dev/kvm && -w /dev/kvm ]] && grep -qwE 'svm|vmx' /proc/cpuinfo
    then accel=kvm; else accel=tcg; fi
fi
((check)) && { echo "ok: kernel $kver, accel $accel"; exit 0; }

# --- per-user cache: unpacked kernel (saves 2.5 s of emulated xz) and initramfs --
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/sluice-rdma-guest/$kver
mkdir -p "$cache" 2>/dev/null || { cache=${TMPDIR:-/tmp}/sluice-rdma-guest-$(id -u)/$kver; mkdir -p "$cache"; } || exit 125
run=$(mktemp -d "${TMPDIR:-/tmp}/sluice-rdma.XXXXXX") || exit 125
run=$(realpath "$run")
qpid='' cats=()
# shellcheck disable=SC2317 # a trap calls it
cleanup() {
    [[ -n $qpid ]] && kill -TERM "$qpid" 2>/dev/null
    ((${#cats[@]})) && kill "${cats[@]}" 2>/dev/null
    rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

image=/boot/vmlinuz-$kver
if [[ $cache/vmlinux -ot $image ]]; then
    # bzImage = setup + xz stream; an ELF with a PVH note boots directly
    off=$(LC_ALL=C grep -obUaP -m1 '\xfd7zXZ\x00' "$image" | head -n1 | cut -d: -f1)
    if [[ -n $off ]]; then
        tail -c +$((off + 1)) "$image" | xz -dcq --single-stream >"$run/vmlinux" 2>/dev/null
        if [[ $(head -c4 "$run/vmlinux") == $'\x7fELF' ]]; then mv "$run/vmlinux" "$cache/vmlinux.$$" && mv "$cache/vmlinux.$$" "$cache/vmlinux"; fi
    fi
fi
[[ -s $cache/vmlinux && ! $cache/vmlinux -ot $image ]] && image=$cache/vmlinux

if [[ ! -s $cache/initrd || $cache/initrd -ot $0 || $cache/initrd -ot /boot/vmlinuz-$kver || $cache/initrd -ot $bb ]]; then
    d=$run/initrd.d; mkdir -p "$d"/{bin,mods,proc,dev,lower,rw,new}
    cp "$bb" "$d/bin/busybox"
    n=100
    while read -r m; do
        b=$(basename "$m"); n=$((n + 1))
        case $b in
            *.xz)  xz   -dc "$m" >"$d/mods/$n-${b%.xz}" ;;
            *.zst) zstd -dcq "$m" >"$d/mods/$n-${b%.zst}" ;;
            *)     cp "$m" "$d/mods/$n-$b" ;;
        esac || die 125 "cannot unpack $m"
    done < <(for m in virtio_pci virtio_console 9pnet_virtio 9p overlay
             do modprobe -S "$kver" --show-depends "$m"; done | awk '$1 == "insmod" && !seen[$2]++ {print $2}')
    cat >"$d/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t devtmpfs dev /dev
for m in /mods/*; do $b insmod $m || echo "rdma guest: insmod $m failed"; done
for w in $($b cat /proc/cmdline); do case $w in vm.run=*) run=${w#*=};; esac; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /lower
$b mount -t tmpfs -o size=80% tmpfs /rw; $b mkdir /rw/u /rw/w
$b mount -t overlay -o lowerdir=/lower,upperdir=/rw/u,workdir=/rw/w overlay /new || echo "rdma guest: no root"
n=/new
$b mount -t proc proc $n/proc; $b mount -t sysfs sys $n/sys; $b mount -t devtmpfs dev $n/dev
$b mkdir -p $n/dev/pts $n/dev/shm; $b mount -t devpts devpts $n/dev/pts
$b mount -t tmpfs tmpfs $n/dev/shm; $b mount -t tmpfs tmpfs $n/run
# as pid 1: the kernel's own module loading (crc32 for rxe) uses pid 1's root
exec $b switch_root $n /bin/bash $run/guest </dev/null
INIT
    chmod +x "$d/init"
    (cd "$d" && find . | cpio -o -H newc --quiet) >"$cache/initrd.$$" || die 125 "cannot build the initramfs"
    mv "$cache/initrd.$$" "$cache/initrd" || die 125 "cannot keep the initramfs in $cache"
    rm -rf "$d"
fi

# --- the guest's script ---------------------------------------------------------
fs=(-virtfs "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap")
{
    echo "rails=$rails net=$net loopback=$loopback"
    cat <<'GUEST'
for p in /sys/class/virtio-ports/vport*; do ln -sf /dev/${p##*/} /run/port.$(cat $p/name); done
fail() { echo "rdma guest: $*" >/run/port.err; sync; reboot_; }
reboot_() { sleep 0.1; echo b >/proc/sysrq-trigger; sleep 5; }
hostname rdma-guest
# /tmp stays part of the overlay, because tests may be there.
ulimit -l unlimited; ulimit -c 0
ip link set lo up
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.default.accept_dad=0
[[ $net == pair ]] && kind=veth || kind=dummy
modprobe -a rdma_rxe ib_uverbs rdma_ucm $kind || fail "cannot load rdma_rxe, ib_uverbs, rdma_ucm or $kind"
((loopback)) && { rdma link add rxelo type rxe netdev lo || fail "no device on lo"; }
for ((i = 0; i < rails; i++)); do
    if [[ $net == pair ]]; then
        ip link add rail${i}a mtu 4500 type veth peer name rail${i}b mtu 4500 || fail "no veth"
        ip addr add 10.77.$i.1/24 dev rail${i}a; ip addr add 10.77.$i.2/24 dev rail${i}b
        ends="a b"
    else
        ip link add rail$i mtu 4500 type dummy || fail "no dummy"
        ip addr add 10.77.$i.1/24 dev rail$i; ip addr add 10.77.$i.2/24 dev rail$i
        ends=none
    fi
    for e in $ends; do
        [[ $e == none ]] && e=
        # both ends of a wire have local addresses: accept_local lets packets in
        sysctl -qw net.ipv4.conf.rail$i$e.accept_local=1 net.ipv4.conf.rail$i$e.rp_filter=0
        ip link set rail$i$e up
        rdma link add rxe$i$e type rxe netdev rail$i$e || fail "rdma link add failed"
    done
done
GUEST
    export -p
    printf 'cmd=('; printf '%q ' "$@"; echo ')'
    printf 'cd %q || fail "no such directory in the guest"\n' "$PWD"
    cat <<'GUEST'
export SLUICE_TEST_RDMA=10.77.0.1,10.77.0.2
read -r up _ </proc/uptime; echo "up $up" >/run/port.rc
# Pipes instead of the ports: a port can be opened only once, and programs may open
# /dev/stdout again.
mkfifo /run/o /run/e
cat /run/o >/run/port.out & o=$!
cat /run/e >/run/port.err & e=$!
exec 7>/run/o 8>/run/e
"${cmd[@]}" >&7 2>&8 7>&- 8>&- </dev/null
rc=$?
exec 7>&- 8>&-
# Lets the output drain, without waiting for a daemon that keeps it open.
for ((i = 0; i < 30; i++)); do kill -0 $o 2>/dev/null || kill -0 $e 2>/dev/null || break; sleep 0.1; done
mountpoint -q /proc && sync
read -r up _ </proc/uptime; echo "rc $rc $up" >/run/port.rc
reboot_
GUEST
} >"$run/guest"

# --- run it -----------------------------------------------------------------------
for f in out err; do mkfifo "$run/$f"; done
# Kept open read-write until QEMU has ended, so that no open() of them blocks.
exec 5<>"$run/out" 6<>"$run/err"
cat <"$run/out" 5>&- 6>&- & cats+=($!)
cat <"$run/err" >&2 5>&- 6>&- & cats+=($!)
: >"$run/rc"; : >"$run/console"
# Under load the guest may measure a wrong TSC rate (1.6 times too fast was observed), which
# shortens every timeout. In a virtual machine "cpu MHz" of the host is the right rate.
tsc=tsc=reliable
if [[ $accel == tcg ]] && grep -qw hypervisor /proc/cpuinfo; then
    khz=$(awk -F: '/^cpu MHz/ {printf "%d", $2 * 1000; exit}' /proc/cpuinfo)
    [[ -n $khz ]] && tsc+=" tsc_early_khz=$khz"
fi
q=(qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot
   -accel "$accel" -smp "$cores" -m "$mem"
   -kernel "$image" -initrd "$cache/initrd"
   -append "console=ttyS0 panic=-1 reboot=t vm.run=$run $tsc random.trust_cpu=on mitigations=off $( ((verbose)) || echo quiet)"
   -serial "file:$run/console" -device virtio-serial-pci -device virtio-rng-pci
   "${fs[@]}")
# QEMU emulates rep movsb, carry-less products, crc32 and 256-bit vectors slowly. Without these CPU features, soft-RoCE's checksums and
# copies take 0.4 of the time.
[[ $accel == tcg ]] && q+=(-cpu "max,-erms,-pclmulqdq,-sse4.2,-avx,-avx2") || q+=(-cpu host)
for f in out err rc; do q+=(-chardev "file,id=$f,path=$run/$f" -device "virtserialport,chardev=$f,name=$f"); done
t0=$EPOCHREALTIME s0=$SECONDS
timeout -k 2 "$limit" "${q[@]}" </dev/null >"$run/qemu" 2>&1 5>&- 6>&- &
qpid=$!
wait "$qpid"; qrc=$?
qpid=''
exec 5>&- 6>&-
wait "${cats[@]}" 2>/dev/null; cats=()
t1=$EPOCHREALTIME
if ((verbose)); then
    sed -n '/Run \/init/,$s/^/[console] /p' "$run/console" >&2
    say "accel $accel, guest ready $(awk '$1 == "up" {print $2}' "$run/rc") s after kernel start, total $(awk "BEGIN{printf \"%.2f\", $t1 - $t0}") s"
fi
rc=$(awk '$1 == "rc" {print $2}' "$run/rc")
if [[ -n $rc ]]; then
    awk -v wall="$(awk "BEGIN{print $t1 - $t0}")" '$1 == "rc" && $3 > wall * 1.05 {exit 1}' "$run/rc" ||
        say "warning: the clock of the guest ran too fast ($(awk '$1 == "rc" {print $3}' "$run/rc") s in $(awk "BEGIN{printf \"%.1f\", $t1 - $t0}") s)"
    exit "$rc"
fi
# The guest did not start COMMAND: a limitation of this machine, not a failure of COMMAND.
if ! grep -q '^up ' "$run/rc"; then
    cat "$run/qemu" >&2
    tail -n 30 "$run/console" >&2
    die 77 "needs rdma-guest: the guest did not start within $((SECONDS - s0)) s (qemu status $qrc)"
fi
((qrc == 124 || SECONDS - s0 >= limit)) && { ((verbose)) || tail -n 5 "$run/console" >&2; die 124 "timeout: the guest was killed after $limit s"; }
grep -v 'warning: .* doesn.t support requested feature' "$run/qemu" >&2
((verbose)) || tail -n 30 "$run/console" >&2
die 125 "the guest ended before COMMAND did (qemu status $qrc)"
