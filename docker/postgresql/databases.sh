#!/bin/sh
# Run once by the image, when its volume is empty: the catalog gets a database of its own beside Airflow's.
set -eu
createdb --username "$POSTGRES_USER" statelib
