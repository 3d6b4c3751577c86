"""Chooses the cluster file of this machine's GPU: a preset by the name that nvidia-smi prints, else
a calibrated file.
"""

import os
import re
import subprocess

# From the more specific to the more general. Example names of nvidia-smi: "NVIDIA H100 80GB HBM3",
# "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "Tesla V100-SXM2-32GB",
# "NVIDIA GeForce RTX 4090".
PRESETS = [
    (r"\bGB300\b", "gb300-nvl72"),
    (r"\bGB200\b", "gb200-nvl72"),
    (r"\bB200\b", "b200"),
    (r"\bH200\b(?!.*\bNVL\b)", "h200-sxm"),
    (r"\bH800\b(?!.*\bPCIe\b)", "h800-sxm"),
    (r"\bH20\b", "h20-sxm"),
    (r"\bH100\b.*\bPCIe\b", "h100-pcie"),
    (r"\bH100\b.*\bHBM3\b", "h100-sxm"),
    (r"\bA100\b.*\b80GB\b.*PCIe", "a100-80gb-pcie"),
    (r"\bA100-SXM\d?-80GB", "a100-80gb-sxm"),
    (r"\bA100-SXM\d?-40GB", "a100-40gb-sxm"),
    (r"\bA800-SXM\d?-80GB", "a800-80gb-sxm"),
    (r"\bV100-SXM\d?-32GB", "v100-32gb"),
    (r"\bV100-SXM\d?-16GB", "v100-16gb"),
    (r"\bL40S\b", "l40s"),
    (r"\bL4\b", "l4"),
    (r"\bRTX 4090\b(?! D)", "rtx4090"),
]


def preset_of(device):
    """Returns the preset of a device. Example: "h100-sxm" for "NVIDIA H100 80GB HBM3"; None for
    "NVIDIA T4".
    """
    for pattern, preset in PRESETS:
        if re.search(pattern, device):
            return preset
    return None


def first_device():
    """Returns the name of GPU 0, or "" if nvidia-smi gives no name."""
    command = ["nvidia-smi", "-i", "0", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cluster_for(device, calibrated):
    """Returns the cluster to plan for and a sentence that explains it. Raises LookupError if there
    is no cluster.
    """
    preset = preset_of(device)
    if preset:
        return preset, f"{device} is the preset {preset}"
    if calibrated and os.path.exists(calibrated):
        return os.path.abspath(calibrated), f"no preset is known for {device or 'this GPU'}; plans are for {calibrated}, which was measured"
    raise LookupError(f"no preset is known for {device or 'this GPU'}; measure it: tbc calibrate --gpus 1 -o cluster.toml, then --calibrated cluster.toml")
