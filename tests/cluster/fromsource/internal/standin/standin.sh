#!/bin/sh
# Stands in for docker on hosts whose bounding set lacks CAP_SYS_RESOURCE, where
# Docker refuses every privileged container. Found first on kind's PATH, it asks
# for the same by other means; everything else goes to the real docker unchanged.
real='@DOCKER@'

case "${1-}" in
run | create)
	for argument do
		shift
		if [ "$argument" = --privileged ] && [ -z "${replaced-}" ]; then
			replaced=yes
			set -- "$@" --cap-add=ALL --cap-drop=SYS_RESOURCE \
				--security-opt systempaths=unconfined --device-cgroup-rule 'a *:* rwm'
		else
			set -- "$@" "$argument"
		fi
	done
	;;
exec)
	# The container's own capabilities apply.
	for argument do
		shift
		if [ "$argument" = --privileged ] && [ -z "${replaced-}" ]; then
			replaced=yes
		else
			set -- "$@" "$argument"
		fi
	done
	;;
esac
exec "$real" "$@"
