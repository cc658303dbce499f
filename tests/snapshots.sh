#!/usr/bin/env bash
# Take the snapshots in tests/data/snapshots anew: each sandbox profile, idle. Run it from the
# repository, with rv on PATH, after a change of what a snapshot holds.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

for profile in small campus examples/clusters/*.yaml; do
  name=$(basename "$profile" .yaml)
  rv sandbox up --profile "$profile" --name "snapshot-$name"
  rv snapshot --cluster "sandbox:snapshot-$name" >"tests/data/snapshots/$name.json"
  rv sandbox down --name "snapshot-$name"
done
