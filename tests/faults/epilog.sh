#!/bin/sh
# The epilog of the fault suite's clusters: at once, or slow while a scenario asks for it.
[ ! -e "${SLURM_CONF%/*}/epilog_is_slow" ] || sleep 12
