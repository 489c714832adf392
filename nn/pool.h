#pragma once

#include <cstdint>
#include <optional>

#include <tandem/autograd/spatial.h>
#include <tandem/nn/module.h>

// Pooling as modules; see the functions of autograd/spatial.h.

namespace tandem::inline v0::nn {

/// Options of MaxPool2d.
struct MaxPool2dOptions {
  std::optional<Size2d> stride = std::nullopt;  // default: the kernel_size
  Size2d padding = 0;                           // on each side
  Size2d dilation = 1;                          // between elements of a window
  bool ceil_mode = false;                       // whether a last window may stand over
};

/// The largest element of each window: max_pool2d().
class TANDEM_API MaxPool2d : public Module<MaxPool2d> {
 public:
  explicit MaxPool2d(Size2d kernel_size, const MaxPool2dOptions& options = {});
  Tensor forward(const Tensor& x) const {
    return max_pool2d(x, kernel_size_, options_.stride, options_.padding, options_.dilation, options_.ceil_mode);
  }

 private:
  Size2d kernel_size_;
  MaxPool2dOptions options_;
};

/// Options of MaxPool1d.
struct MaxPool1dOptions {
  std::optional<std::int64_t> stride = std::nullopt;  // default: the kernel_size
  std::int64_t padding = 0;                           // on each side
  std::int64_t dilation = 1;                          // between elements of a window
  bool ceil_mode = false;                             // whether a last window may stand over
};

/// The largest element of each window: max_pool1d().
class TANDEM_API MaxPool1d : public Module<MaxPool1d> {
 public:
  explicit MaxPool1d(std::int64_t kernel_size, const MaxPool1dOptions& options = {});
  Tensor forward(const Tensor& x) const {
    return max_pool1d(x, kernel_size_, options_.stride, options_.padding, options_.dilation, options_.ceil_mode);
  }

 private:
  std::int64_t kernel_size_;
  MaxPool1dOptions options_;
};

/// Options of AvgPool2d.
struct AvgPool2dOptions {
  std::optional<Size2d> stride = std::nullopt;                  // default: the kernel_size
  Size2d padding = 0;                                           // on each side
  bool ceil_mode = false;                                       // whether a last window may stand over
  bool count_include_pad = true;                                // whether padding counts in the mean
  std::optional<std::int64_t> divisor_override = std::nullopt;  // default: the size of the window
};

/// The mean of each window: avg_pool2d().
class TANDEM_API AvgPool2d : public Module<AvgPool2d> {
 public:
  explicit AvgPool2d(Size2d kernel_size, const AvgPool2dOptions& options = {});
  Tensor forward(const Tensor& x) const {
    return avg_pool2d(x, kernel_size_, options_.stride, options_.padding, options_.ceil_mode,
                      options_.count_include_pad, options_.divisor_override);
  }

 private:
  Size2d kernel_size_;
  AvgPool2dOptions options_;
};

/// Options of AvgPool1d.
struct AvgPool1dOptions {
  std::optional<std::int64_t> stride = std::nullopt;  // default: the kernel_size
  std::int64_t padding = 0;                           // on each side
  bool ceil_mode = false;                             // whether a last window may stand over
  bool count_include_pad = true;                      // whether padding counts in the mean
};

/// The mean of each window: avg_pool1d().
class TANDEM_API AvgPool1d : public Module<AvgPool1d> {
 public:
  explicit AvgPool1d(std::int64_t kernel_size, const AvgPool1dOptions& options = {});
  Tensor forward(const Tensor& x) const {
    return avg_pool1d(x, kernel_size_, options_.stride, options_.padding, options_.ceil_mode,
                      options_.count_include_pad);
  }

 private:
  std::int64_t kernel_size_;
  AvgPool1dOptions options_;
};

/// The mean of each of a given number of windows: adaptive_avg_pool2d(). AdaptiveAvgPool2d(1) is global pooling.
class TANDEM_API AdaptiveAvgPool2d : public Module<AdaptiveAvgPool2d> {
 public:
  explicit AdaptiveAvgPool2d(Size2d output_size);
  Tensor forward(const Tensor& x) const { return adaptive_avg_pool2d(x, output_size_); }

 private:
  Size2d output_size_;
};

/// The largest element of each of a given number of windows: adaptive_max_pool2d().
class TANDEM_API AdaptiveMaxPool2d : public Module<AdaptiveMaxPool2d> {
 public:
  explicit AdaptiveMaxPool2d(Size2d output_size);
  Tensor forward(const Tensor& x) const { return adaptive_max_pool2d(x, output_size_); }

 private:
  Size2d output_size_;
};

}  // namespace tandem::inline v0::nn
