"""L5Kit datasets for training: a sample per frame of the vehicle (EgoDataset) or per agent (AgentDataset).

Every name here has the interface of the original of that name, on numpy alone: no torch is needed, and
torch's DataLoader takes these datasets as they are. `EgoDatasetVectorized` is not covered.
"""

from logloom.datasets.l5kit.agent import AgentDataset
from logloom.datasets.l5kit.building import build_rasterizer
from logloom.datasets.l5kit.config import LocalDataManager, load_config_data
from logloom.datasets.l5kit.ego import EgoDataset
from logloom.datasets.l5kit.from_rows import dataset_of_rows
from logloom.datasets.l5kit.geometry import RenderContext
from logloom.datasets.l5kit.map_rasterizers import (
    MapAndBoxRasterizer,
    SatelliteRasterizer,
    SemanticRasterizer,
)
from logloom.datasets.l5kit.rasterizers import BoxRasterizer, Rasterizer, StubRasterizer
from logloom.datasets.l5kit.semantic_map import SemanticMap
from logloom.io.l5kit import ChunkedDataset
from logloom.io.l5kit.mask import MaskThresholds, compute_agents_mask

__all__ = [
    "AgentDataset",
    "BoxRasterizer",
    "ChunkedDataset",
    "EgoDataset",
    "LocalDataManager",
    "MapAndBoxRasterizer",
    "MaskThresholds",
    "Rasterizer",
    "RenderContext",
    "SatelliteRasterizer",
    "SemanticMap",
    "SemanticRasterizer",
    "StubRasterizer",
    "build_rasterizer",
    "compute_agents_mask",
    "dataset_of_rows",
    "load_config_data",
]
