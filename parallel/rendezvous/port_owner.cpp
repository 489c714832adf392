#include <tandem/parallel/rendezvous/port_owner.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

namespace fs = std::filesystem;

struct Listener {
  std::string user;
  std::string inode;
};

// The address as the table has it: each group of four bytes as a number of this machine, in hexadecimal digits.
std::string in_table(const asio::ip::address& address) {
  std::string text;
  const auto add = [&](const auto& bytes) {
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, &bytes[i], 4);
      text += fmt::format("{:08X}", word);
    }
  };
  address.is_v4() ? add(address.to_v4().to_bytes()) : add(address.to_v6().to_bytes());
  return text;
}

std::optional<Listener> find_listener(const char* table, const std::string& address, std::uint16_t port) {
  constexpr std::string_view kListens = "0A";
  std::ifstream file(table);
  std::string line;
  for (std::getline(file, line); std::getline(file, line);) {
    std::istringstream fields(line);
    std::string local, state, skipped;
    Listener found;
    fields >> skipped >> local >> skipped >> state >> skipped >> skipped >> skipped >> found.user >> skipped >>
        found.inode;
    const std::size_t colon = local.find(':');
    if (state != kListens || local.substr(colon + 1) != fmt::format("{:04X}", port)) {
      continue;
    }
    const std::string at = local.substr(0, colon);
    if (at == address || at.find_first_not_of('0') == std::string::npos) {
      return found;
    }
  }
  return std::nullopt;
}

std::optional<std::string> process_with_socket(const std::string& inode) {
  const std::string wanted = "socket:[" + inode + "]";
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    fs::directory_iterator descriptor(process.path() / "fd", error);
    for (; !error && descriptor != fs::directory_iterator(); descriptor.increment(error)) {
      std::error_code closed;
      if (fs::read_symlink(descriptor->path(), closed) == wanted) {
        return pid;
      }
    }
  }
  return std::nullopt;
}

// The first words of its command, without the folder of the program.
std::string command_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/cmdline");
  std::string command(std::istreambuf_iterator<char>(file), {});
  while (!command.empty() && command.back() == '\0') {
    command.pop_back();
  }
  command.erase(0, command.rfind('/', command.find('\0')) + 1);
  std::replace(command.begin(), command.end(), '\0', ' ');
  return shown_key(command);
}

}  // namespace

std::string port_owner(const asio::ip::tcp::endpoint& endpoint) {
  const std::string address = in_table(endpoint.address());
  std::optional<Listener> listener = find_listener("/proc/net/tcp6", address, endpoint.port());
  if (!listener && endpoint.address().is_v4()) {
    listener = find_listener("/proc/net/tcp", address, endpoint.port());
  }
  if (!listener) {
    return "another program";
  }
  const std::optional<std::string> pid = process_with_socket(listener->inode);
  return pid ? fmt::format("pid {} ({})", *pid, command_of(*pid)) : fmt::format("a process of user {}", listener->user);
}

}  // namespace tandem::inline v0::parallel
