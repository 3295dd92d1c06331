#!/bin/sh
# First process of a node. Does what Docker does for a privileged container, for
# hosts where a privileged one cannot be started, then becomes kind's own
# entrypoint. Where it is so already, each line changes nothing.
while read -r _ _ _ _ mountpoint _; do
	case "$mountpoint" in
	/sys/fs/cgroup | /sys/fs/cgroup/*) mount -o remount,bind,rw "$mountpoint" 2>/dev/null ;;
	esac
done </proc/self/mountinfo
mount -o remount,rw /sys 2>/dev/null

node() { [ -e "$1" ] || mknod -m "$2" "$1" "$3" "$4" "$5" || true; }
node /dev/kmsg 600 c 1 11
node /dev/fuse 666 c 10 229
node /dev/loop-control 660 c 10 237
number=0
while [ "$number" -lt 32 ]; do
	node "/dev/loop$number" 660 b 7 "$number"
	number=$((number + 1))
done
exec "$@"
