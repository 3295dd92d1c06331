#!/usr/bin/env bash
# Runs a command as root, with the environment of the user who calls it, and gives that user what it made: the caches are
# saved and the artifacts uploaded without root.
set -euo pipefail
give_back() {
  for folder in "$HOME/.cache" "$HOME/go" artifacts; do
    if [[ -e $folder ]]; then sudo chown -R "$(id -u):$(id -g)" "$folder"; fi
  done
}
trap give_back EXIT
sudo --preserve-env env "HOME=$HOME" "PATH=$PATH" "$@"
