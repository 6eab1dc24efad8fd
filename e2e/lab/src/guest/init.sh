#!/bin/dash
# First process of the guest: prepares an ordinary small machine, runs /portolan/run, powers off.
# Its output goes to the serial console, which is a log. The command uses separate channels.
export PATH=/portolan/bin:/usr/sbin:/usr/bin:/usr/lib/applets HOME=/root
cd /

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /run /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
# The kernel's own default path is no longer where Debian keeps it on every release; without it
# iptables-nft cannot load nft_chain_nat and fails with "No such file".
echo /usr/sbin/modprobe > /proc/sys/kernel/modprobe
hostname portolan-guest
ip link set lo up

modprobe -a virtio_pci virtio_console virtio_rng

# Channels to the lab are virtio ports, found by name; they appear a moment after their driver.
port() {
    tries=0
    while [ $tries -lt 200 ]; do
        for folder in /sys/class/virtio-ports/*; do
            if [ "$(cat "$folder/name" 2>/dev/null)" = "$1" ]; then
                echo "/dev/${folder##*/}"
                return
            fi
        done
        tries=$((tries + 1))
        usleep 50000
    done
    echo "init: no channel $1" >&2
    echo /dev/console
}
status=$(port portolan.status)
output=$(port portolan.output)

. /portolan/settings
modprobe -a $MODULES || echo "init: not all of these could be loaded: $MODULES"
if [ "$NETWORK" = 1 ]; then
    modprobe virtio_net
    ip link set eth0 up
    ip address add 10.0.2.15/24 dev eth0
    ip route add default via 10.0.2.2
fi
if [ -e /dev/hvc0 ]; then
    (
        while :; do
            setsid -c dash -i </dev/hvc0 >/dev/hvc0 2>&1
            echo "[the guest shell ended]" >/dev/hvc0
        done
    ) &
fi

echo started >"$status"
dash /portolan/run >"$output" 2>&1 </dev/null
echo "exit $?" >"$status"
poweroff -f
