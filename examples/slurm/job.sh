#!/bin/sh
#SBATCH --job-name=gpu
#SBATCH --gres=gpu:1
# A container with the GPUs that Slurm gave to this job, and no others:
#   sbatch job.sh
# SLURM_STEP_GPUS (srun) and SLURM_JOB_GPUS (sbatch) count the node's GPUs; CUDA_VISIBLE_DEVICES counts those of the job
# where slurmd confines jobs to their devices (ConstrainDevices), so it is no name of a device.
set --
for index in $(echo "${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}" | tr , ' '); do
    set -- "$@" --device "nvidia.com/gpu=$index"
done
exec podman run --rm "$@" docker.io/library/debian:stable find /dev -name "nvidia*"
