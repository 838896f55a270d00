"""Datasets for supervised fine-tuning in the format `benchmax-sft-v1`: valid as a whole, or refused with all issues."""

from benchmax.sft.dataset import SftDataset
from benchmax.sft.issues import SFT_DATASET_FORMAT, SftDatasetError, SftIssue

__all__ = ["SFT_DATASET_FORMAT", "SftDataset", "SftDatasetError", "SftIssue"]
