// A network of two hosts whose packets take their time: slow_wire FROM TO DELAY_MS [MOST]. Packets of more than MOST
// bytes are lost, as on a path whose MTU nobody has learned.
//
// FROM and TO are files of network namespaces (/run/netns/host0). Each gets an interface eth0 (10.77.0.1 and 10.77.0.2)
// that leads to the other. Prints "ready" once both are up, and carries packets until it is killed.

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "slow_wire: {}: {}\n", what, std::strerror(errno));
  std::exit(77);
}

// The other end of the interface eth0 that the namespace gets.
int end_in(const std::string& space, int host) {
  const int file = ::open(space.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || ::setns(file, CLONE_NEWNET) != 0) {
    fail("cannot enter " + space);
  }
  ::close(file);
  const int tunnel = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strcpy(request.ifr_name, "eth0");
  if (tunnel < 0 || ::ioctl(tunnel, TUNSETIFF, &request) != 0) {
    fail("no tunnel");
  }
  const std::string up =
      fmt::format("ip addr add 10.77.0.{}/24 dev eth0 && ip link set eth0 up && ip link set lo up", host + 1);
  if (std::system(up.c_str()) != 0) {
    fail("no address");
  }
  return tunnel;
}

struct Packet {
  Clock::time_point due;
  int to;
  std::vector<char> bytes;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: slow_wire FROM TO DELAY_MS [MOST]\n");
    return 2;
  }
  const ssize_t most = argc > 4 ? std::atol(argv[4]) : 65536;
  const std::array<int, 2> ends{end_in(argv[1], 0), end_in(argv[2], 1)};
  const std::chrono::microseconds delay(static_cast<std::int64_t>(1000 * std::atof(argv[3])));
  std::printf("ready\n");
  std::fflush(stdout);
  std::deque<Packet> on_their_way;  // all take the same time, so the first is due first
  std::vector<char> buffer(65536);
  for (;;) {
    int wait_ms = -1;
    while (!on_their_way.empty()) {
      const Packet& first = on_their_way.front();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(first.due - Clock::now()).count();
      if (left > 0) {
        wait_ms = static_cast<int>(left);
        break;
      }
      [[maybe_unused]] const ssize_t written = ::write(ends[first.to], first.bytes.data(), first.bytes.size());
      on_their_way.pop_front();
    }
    std::array<pollfd, 2> polled{{{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), wait_ms);
    for (const int from : {0, 1}) {
      for (ssize_t size = 0; (size = ::read(ends[from], buffer.data(), buffer.size())) > 0;) {
        if (size <= most) {
          on_their_way.push_back({Clock::now() + delay, 1 - from, {buffer.begin(), buffer.begin() + size}});
        }
      }
    }
  }
}
