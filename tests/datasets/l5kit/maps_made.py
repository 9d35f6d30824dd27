"""Makers of semantic maps, encoded by the protobuf package."""

import json
import math

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

LATITUDE, LONGITUDE = 37.4, -122.15
_FIELD = descriptor_pb2.FieldDescriptorProto
# Of each message: name -> (number, type); a type in capitals is a number's, * says repeated.
_MESSAGES = {
    "GlobalId": {"id": (1, "BYTES")},
    "GeoLocation": {"lat_e7": (1, "SFIXED32"), "lng_e7": (2, "SFIXED32")},
    "GeoFrame": {"origin": (1, "GeoLocation"), "bearing_degrees": (2, "FLOAT")},
    "Boundary": {
        "vertex_deltas_x_cm": (1, "SINT32*"),
        "vertex_deltas_y_cm": (2, "SINT32*"),
        "vertex_deltas_z_cm": (3, "SINT32*"),
    },
    "Lane": {
        "geo_frame": (2, "GeoFrame"),
        "left_boundary": (3, "Boundary"),
        "right_boundary": (4, "Boundary"),
        "traffic_controls": (8, "GlobalId*"),
        "can_have_parked_cars": (10, "BOOL"),
    },
    "Empty": {},
    "TrafficControlElement": {
        "geo_frame": (2, "GeoFrame"),
        "points_x_deltas_cm": (3, "SINT32*"),
        "points_y_deltas_cm": (4, "SINT32*"),
        "points_z_deltas_cm": (5, "SINT32*"),
        "signal_red_face": (11, "Empty"),
        "pedestrian_crosswalk": (16, "Empty"),
        "signal_left_arrow_green_face": (31, "Empty"),
        "signal_right_arrow_yellow_face": (37, "Empty"),
    },
    "Element": {"lane": (3, "Lane"), "traffic_control_element": (4, "TrafficControlElement")},
    "MapElement": {"id": (1, "GlobalId"), "element": (2, "Element")},
    "MapFragment": {"name": (1, "STRING"), "elements": (2, "MapElement*")},
}


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="map_made.proto", package="made", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            kind, label = kind.rstrip("*"), _FIELD.LABEL_REPEATED if kind.endswith("*") else 1
            added = message.field.add(name=field, number=number, label=label)
            if kind.isupper():
                added.type = getattr(_FIELD, f"TYPE_{kind}")
            else:
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".made.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"made.{name}"))
        for name in _MESSAGES
    }


CLASSES = _classes()


def enu_to_ecef(latitude=LATITUDE, longitude=LONGITUDE) -> np.ndarray:
    """The world as east, north and up of a place: world_to_ecef."""
    phi, lam = math.radians(latitude), math.radians(longitude)
    a, b = 6378137.0, 6356752.314245
    n = a**2 / math.hypot(a * math.cos(phi), b * math.sin(phi))
    flat = n * math.cos(phi)
    place = [flat * math.cos(lam), flat * math.sin(lam), n * (b / a) ** 2 * math.sin(phi)]
    east = [-math.sin(lam), math.cos(lam), 0]
    north = [-math.sin(phi) * math.cos(lam), -math.sin(phi) * math.sin(lam), math.cos(phi)]
    up = [math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)]
    return np.vstack([np.stack([east, north, up, place], axis=1), [0, 0, 0, 1]])


def deltas(values) -> list[int]:
    return np.diff(np.rint(np.asarray(values) * 100).astype(int), prepend=0).tolist()


def set_frame(message) -> None:
    message.geo_frame.origin.lat_e7 = round(LATITUDE * 1e7)
    message.geo_frame.origin.lng_e7 = round(LONGITUDE * 1e7)


def add_lane(fragment, left, right, controls=()) -> None:
    element = fragment.elements.add()
    element.id.id = f"lane-{len(fragment.elements)}".encode()
    lane = element.element.lane
    set_frame(lane)
    for boundary, line in ((lane.left_boundary, left), (lane.right_boundary, right)):
        line = np.asarray(line, float)
        boundary.vertex_deltas_x_cm.extend(deltas(line[:, 0]))
        boundary.vertex_deltas_y_cm.extend(deltas(line[:, 1]))
        boundary.vertex_deltas_z_cm.extend([0] * len(line))
    for control in controls:
        lane.traffic_controls.add().id = control.encode()


def add_control(fragment, name, kind, polygon=()) -> None:
    element = fragment.elements.add()
    element.id.id = name.encode()
    control = element.element.traffic_control_element
    set_frame(control)
    getattr(control, kind).SetInParent()
    if len(polygon):
        polygon = np.asarray(polygon, float)
        control.points_x_deltas_cm.extend(deltas(polygon[:, 0]))
        control.points_y_deltas_cm.extend(deltas(polygon[:, 1]))
        control.points_z_deltas_cm.extend([0] * len(polygon))


def make_map(controls=("red", "green", "yellow")) -> bytes:
    """A lane along x from -20 to 60 m, 8 m wide, and a crosswalk over it from 12 to 15 m."""
    fragment = CLASSES["MapFragment"](name="made")
    add_lane(fragment, [[-20, 4], [10, 4], [60, 4]], [[-20, -4], [60, -4]], controls)
    add_control(fragment, "red", "signal_red_face")
    add_control(fragment, "green", "signal_left_arrow_green_face")
    add_control(fragment, "yellow", "signal_right_arrow_yellow_face")
    add_control(fragment, "walk", "pedestrian_crosswalk", [[12, -6], [15, -6], [15, 6], [12, 6]])
    return fragment.SerializeToString()


def write_folder(folder, data: bytes) -> None:
    """The files that a configuration names for a semantic map."""
    (folder / "map.pb").write_bytes(data)
    (folder / "meta.json").write_text(json.dumps({"world_to_ecef": enu_to_ecef().tolist()}))
