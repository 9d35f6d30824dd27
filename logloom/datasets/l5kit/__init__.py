"""L5Kit datasets for training, with a sample per vehicle frame or per agent.

`EgoDataset` has a sample per frame of the vehicle, `AgentDataset` one per agent.
Every name here has the interface of the original of that name, on numpy alone: no torch is needed, and
torch's DataLoader takes these datasets as they are. `EgoDatasetVectorized` is not covered. Beside datasets
and rasterizers: choosing rows (filter), geometry, new datasets from scenes of others (copying, chopping).
"""

from logloom.datasets.l5kit.chopped_dataset import create_chopped_dataset, export_zarr_to_csv
from logloom.datasets.l5kit.config import LocalDataManager, load_config_data, save_config_data
from logloom.datasets.l5kit.datasets import AgentDataset, EgoDataset
from logloom.datasets.l5kit.filter import (
    PERCEPTION_LABEL_TO_INDEX,
    PERCEPTION_LABELS,
    TL_FACE_LABEL_TO_INDEX,
    filter_agents_by_distance,
    filter_agents_by_frames,
    filter_agents_by_labels,
    filter_agents_by_track_id,
    filter_tl_faces_by_frames,
    filter_tl_faces_by_status,
    get_agents_slice_from_frames,
    get_combined_scenes,
    get_frames_slice_from_scenes,
    get_tl_faces_slice_from_frames,
)
from logloom.datasets.l5kit.from_rows import dataset_of_rows
from logloom.datasets.l5kit.geometry import (
    RenderContext,
    angle_between_vectors,
    angular_distance,
    compute_agent_pose,
    compute_yaw_around_north_from_direction,
    crop_rectangle_from_image,
    ecef_to_geodetic,
    geodetic_to_ecef,
    normalize_intensity,
    points_within_bounds,
    rotation33_as_yaw,
    transform_point,
    transform_points,
    vertical_flip,
    voxel_coords_to_intensity_grid,
    yaw_as_rotation33,
)
from logloom.datasets.l5kit.map_rasterizers import (
    MapAndBoxRasterizer,
    SatelliteRasterizer,
    SemanticRasterizer,
    build_rasterizer,
)
from logloom.datasets.l5kit.rasterizers import BoxRasterizer, Rasterizer, StubRasterizer
from logloom.datasets.l5kit.semantic_map import SemanticMap
from logloom.io.formats.l5kit import (
    AGENT_DTYPE,
    FRAME_DTYPE,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    TL_FACE_LABELS,
    ChunkedDataset,
)
from logloom.io.formats.l5kit.mask import MaskThresholds, compute_agents_mask
from logloom.io.formats.l5kit.scene_copies import zarr_concat, zarr_scenes_chop, zarr_split

__all__ = [
    "AGENT_DTYPE",
    "FRAME_DTYPE",
    "PERCEPTION_LABELS",
    "PERCEPTION_LABEL_TO_INDEX",
    "SCENE_DTYPE",
    "TL_FACE_DTYPE",
    "TL_FACE_LABELS",
    "TL_FACE_LABEL_TO_INDEX",
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
    "angle_between_vectors",
    "angular_distance",
    "build_rasterizer",
    "compute_agent_pose",
    "compute_agents_mask",
    "compute_yaw_around_north_from_direction",
    "create_chopped_dataset",
    "crop_rectangle_from_image",
    "dataset_of_rows",
    "ecef_to_geodetic",
    "export_zarr_to_csv",
    "filter_agents_by_distance",
    "filter_agents_by_frames",
    "filter_agents_by_labels",
    "filter_agents_by_track_id",
    "filter_tl_faces_by_frames",
    "filter_tl_faces_by_status",
    "geodetic_to_ecef",
    "get_agents_slice_from_frames",
    "get_combined_scenes",
    "get_frames_slice_from_scenes",
    "get_tl_faces_slice_from_frames",
    "load_config_data",
    "normalize_intensity",
    "points_within_bounds",
    "rotation33_as_yaw",
    "save_config_data",
    "transform_point",
    "transform_points",
    "vertical_flip",
    "voxel_coords_to_intensity_grid",
    "yaw_as_rotation33",
    "zarr_concat",
    "zarr_scenes_chop",
    "zarr_split",
]
