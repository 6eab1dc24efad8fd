#!/bin/sh
# First file system of a node: loads what the disk needs, and starts the system on it.
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t proc proc /proc
for name in $(/bin/busybox cat /modules/order); do
    /bin/busybox insmod "/modules/$name.ko"
done
tries=0
until [ -b /dev/vda ] || [ $tries -gt 100 ]; do
    /bin/busybox usleep 50000
    tries=$((tries + 1))
done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox umount /proc
/bin/busybox mount -t devtmpfs devtmpfs /root/dev
exec /bin/busybox switch_root /root /usr/local/sbin/lab-node
