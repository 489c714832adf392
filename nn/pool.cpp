#include <tandem/nn/pool.h>

#include <string>

#include <fmt/format.h>

namespace tandem::inline v0::nn {

MaxPool2d::MaxPool2d(Size2d kernel_size, const MaxPool2dOptions& options)
    : kernel_size_(kernel_size), options_(options) {
  describe(fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", to_string(kernel_size),
                       to_string(options.stride.value_or(kernel_size)), to_string(options.padding),
                       to_string(options.dilation), options.ceil_mode));
}

MaxPool1d::MaxPool1d(std::int64_t kernel_size, const MaxPool1dOptions& options)
    : kernel_size_(kernel_size), options_(options) {
  describe(fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", kernel_size,
                       options.stride.value_or(kernel_size), options.padding, options.dilation, options.ceil_mode));
}

AvgPool2d::AvgPool2d(Size2d kernel_size, const AvgPool2dOptions& options)
    : kernel_size_(kernel_size), options_(options) {
  describe(fmt::format("kernel_size={}, stride={}, padding={}", to_string(kernel_size),
                       to_string(options.stride.value_or(kernel_size)), to_string(options.padding)));
}

AvgPool1d::AvgPool1d(std::int64_t kernel_size, const AvgPool1dOptions& options)
    : kernel_size_(kernel_size), options_(options) {
  describe(fmt::format("kernel_size={}, stride={}, padding={}", kernel_size, options.stride.value_or(kernel_size),
                       options.padding));
}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2d output_size) : output_size_(output_size) {
  describe(fmt::format("output_size={}", to_string(output_size)));
}

AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2d output_size) : output_size_(output_size) {
  describe(fmt::format("output_size={}", to_string(output_size)));
}

}  // namespace tandem::inline v0::nn
