// tf2's buffer in C++ as a side of `benchmarks.tf`: filled once, then it looks up one time after the other.
//
//     tf2_side TRANSFORMS
//
// TRANSFORMS is text: how many transforms, of each child, parent, stamp in ns (-1: static), position and
// quaternion; how many times, and each in ns. Each line of standard input is answered with the seconds it took.

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <geometry_msgs/TransformStamped.h>
#include <tf2/buffer_core.h>

static ros::Time at(int64_t nanoseconds) {
  ros::Time time;
  time.fromNSec(static_cast<uint64_t>(nanoseconds));
  return time;
}

int main(int, char** arguments) {
  std::ifstream file(arguments[1]);
  tf2::BufferCore buffer(ros::Duration(100000.0));
  size_t count = 0;
  file >> count;
  for (size_t i = 0; i < count; ++i) {
    geometry_msgs::TransformStamped message;
    int64_t stamp = 0;
    auto& place = message.transform.translation;
    auto& turn = message.transform.rotation;
    file >> message.child_frame_id >> message.header.frame_id >> stamp;
    file >> place.x >> place.y >> place.z >> turn.x >> turn.y >> turn.z >> turn.w;
    if (stamp >= 0) message.header.stamp = at(stamp);
    buffer.setTransform(message, "benchmark", stamp < 0);
  }
  file >> count;
  std::vector<ros::Time> times;
  for (int64_t time = 0; times.size() < count && file >> time;) times.push_back(at(time));
  std::cout << "\"ready\"" << std::endl << std::fixed << std::setprecision(9);
  for (std::string line; std::getline(std::cin, line);) {
    const auto began = std::chrono::steady_clock::now();
    for (const auto& time : times) buffer.lookupTransform("map", "lidar", time);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::cout << took.count() << std::endl;
  }
}
