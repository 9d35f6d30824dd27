"""Messages of ROS 1 and ROS 2: definitions, layouts and decoders."""
