#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// Writes scalars, histograms and texts for TensorBoard into an event file of its own,
/// "events.out.tfevents.TIME.HOST.PID.NUMBER". Names and meanings are those of PyTorch's SummaryWriter. Each call
/// reaches the operating system before it returns: TensorBoard shows a run while it goes on, and a killed run keeps its
/// events.
///
/// Every failure of the system is an IoError that names the path, the operation and the reason; the file then still has
/// complete events alone. Belongs to one thread.
///
/// Format: TensorFlow's record files (lengths and data with masked CRC-32C) of Event messages (protocol buffers).
class TANDEM_API SummaryWriter {
 public:
  /// Creates the folder and its parents if they are not there, and the file with the first event.
  explicit SummaryWriter(const std::string& log_dir);
  ~SummaryWriter();
  SummaryWriter(SummaryWriter&&) noexcept;
  SummaryWriter& operator=(SummaryWriter&&) noexcept;

  /// Adds a value to the curve `tag`: "loss/train". It is written as f32.
  void add_scalar(std::string_view tag, double value, std::int64_t global_step);
  /// Adds a histogram of the finite ones among `values`, in buckets whose limits grow by a tenth. Without one, nothing
  /// is written.
  void add_histogram(std::string_view tag, std::span<const double> values, std::int64_t global_step);
  /// Adds a text, which TensorBoard shows as Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t global_step);
  /// A run goes on from this step: TensorBoard drops what earlier files of the folder say of it and of later ones.
  void restart_at(std::int64_t global_step);

  /// The path of the event file.
  const std::string& path() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::telemetry
