#include <tandem/parallel/write_trace.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <tandem/core/file.h>
#include <tandem/core/host_name.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/rendezvous/text.h>
#include <tandem/telemetry/trace.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::nanoseconds;

// All ranks' texts, on rank 0.
std::vector<std::string> texts_of_ranks(ProcessGroup& group, const std::string& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  const Tensor lengths = zeros({group.size()}, on_cpu(DType::i64));
  group.all_gather_into_tensor(lengths, from_data(std::vector<std::int64_t>{length}, {1}, on_cpu(DType::i64)));
  const std::vector<std::int64_t> sizes = lengths.to_vector<std::int64_t>();
  const std::int64_t most = std::ranges::max(sizes);
  const Tensor padded = zeros({most}, on_cpu(DType::u8));
  std::memcpy(padded.raw().data(), mine.data(), mine.size());
  std::vector<Tensor> texts;
  for (int rank = 0; group.rank() == 0 && rank < group.size(); ++rank) {
    texts.push_back(zeros({most}, on_cpu(DType::u8)));
  }
  group.gather(padded, texts, 0);
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    all.emplace_back(static_cast<const char*>(texts[rank].raw().data()), static_cast<std::size_t>(sizes[rank]));
  }
  return all;
}

// This rank's clock lacks that much to rank 0's; nothing on rank 0's machine.
nanoseconds clock_offset(ProcessGroup& group, const std::string& host) {
  group.barrier();
  const auto now = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
  const auto machine = static_cast<std::int64_t>(std::hash<std::string>()(host));
  const Tensor first = from_data(std::vector<std::int64_t>{now.count(), machine}, {2}, on_cpu(DType::i64));
  group.broadcast(first, 0);
  const std::vector<std::int64_t> of_first = first.to_vector<std::int64_t>();
  return of_first[1] == machine ? nanoseconds(0) : nanoseconds(of_first[0]) - now;
}

}  // namespace

void write_trace(telemetry::Trace& trace, ProcessGroup& group, const std::string& path) {
  trace.stop();
  const std::string host = core::host_name();
  const std::string mine =
      trace.events({.rank = group.rank(), .host = host, .clock_offset = clock_offset(group, host)});
  const std::vector<std::string> all = texts_of_ranks(group, mine);
  if (group.rank() == 0) {
    core::replace_file(path, {telemetry::Trace::join(all)});
  }
}

}  // namespace tandem::inline v0::parallel
