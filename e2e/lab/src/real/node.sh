#!/bin/bash
# First process of a node: what an init system would do, then a container runtime, a kubelet, perhaps kube-proxy.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
# A group with processes cannot hand controllers on to groups below it.
mkdir /sys/fs/cgroup/init
echo 1 >/sys/fs/cgroup/init/cgroup.procs
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
mount --make-rshared /
mkdir -p /var/lib/containerd /run/lock
mount -t ext4 /dev/vdb /var/lib/containerd

# What is of this run and of this node.
tar -xf /dev/vdc -C /
. /etc/lab/node
hostname "$NODE"
echo "127.0.0.1 localhost $NODE" >/etc/hosts
echo "::1 localhost" >>/etc/hosts

modprobe -a virtio_net virtio_rng overlay br_netfilter nf_conntrack vxlan
ip link set lo up
sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.bridge.bridge-nf-call-iptables=1 \
    net.bridge.bridge-nf-call-ip6tables=1 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
. /etc/lab/network

keep() {
    name=$1
    log=/var/log/$name.log
    shift
    while :; do
        "$@" >>"$log" 2>&1
        status=$?
        # The log stays on the node, which goes with its cluster.
        tail -n 5 "$log" >/dev/console
        echo "lab: $name ended with $status" | tee -a "$log" >/dev/console
        sleep 1
    done
}
# Pods get the bridge once it is known how large their packets may be.
plugins() {
    mkdir -p /etc/cni/net.d
    sed "s/\"mtu\":1500/\"mtu\":$1/" /etc/lab/network-plugins >/etc/cni/net.d/10-lab.conflist
}
if [ -e /etc/lab/flannel ]; then
    NODE_NAME=$NODE keep flannel flannel /etc/kubernetes/flannel.conf eth0 /etc/lab/flannel /run/flannel/subnet.env &
    (
        until [ -e /run/flannel/subnet.env ]; do sleep 0.2; done
        . /run/flannel/subnet.env
        plugins "$FLANNEL_MTU"
    ) &
else
    plugins 1500
fi
keep containerd containerd --config /etc/containerd/config.toml &
keep kubelet kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
    --hostname-override="$NODE" --node-ip="$NODE_IPS" &
if [ -e /etc/lab/kube-proxy ]; then
    keep kube-proxy kube-proxy $(cat /etc/lab/kube-proxy) &
fi
echo "lab: $NODE is up" >/dev/console
# As the first process it inherits those whose parents have ended, and bash collects them while it waits.
while :; do
    sleep 3600 &
    wait $!
done
