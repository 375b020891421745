#!/bin/bash
HOSTFILE=$(realpath hosts.txt)
export OMP_NUM_THREADS=8
colossalai run --nproc_per_node 8 --hostfile $HOSTFILE benchmark.py -g -x -b 16
