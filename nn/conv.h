#pragma once

#include <cstdint>
#include <optional>

#include <tandem/autograd/spatial.h>
#include <tandem/nn/module.h>

// Convolutions as modules. Parameters have PyTorch's names, layouts and initial distributions: weight and bias start
// uniform on +-1/sqrt(the weight's elements per entry of its first dimension).

namespace tandem::inline v0::nn {

/// Options of Conv2d.
struct Conv2dOptions {
  Size2d stride = 1;                            // between windows
  ConvPadding padding = 0;                      // on each side, "same" or "valid"
  Size2d dilation = 1;                          // between elements of a window
  std::int64_t groups = 1;                      // channels are divided into so many, which don't see each other
  bool bias = true;                             // whether there is a bias
  std::optional<Device> device = std::nullopt;  // of the parameters; default: the current device
  DType dtype = DType::f32;                     // of the parameters
};

/// conv2d() of images [batch, in_channels, height, width].
class TANDEM_API Conv2d : public Module<Conv2d> {
 public:
  /// Throws ConfigError for negative sizes, a kernel_size or group below 1, and groups that do not divide the channels.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel_size, const Conv2dOptions& options = {});

  Tensor forward(const Tensor& x) const;
  /// relu(forward(x)) in one pass over the result.
  Tensor forward_relu(const Tensor& x) const;

  Parameter weight;  // [out_channels, in_channels / groups, kernel height, kernel width]
  Parameter bias;    // [out_channels]; undefined without bias

 private:
  Size2d stride_;
  ConvPadding padding_;
  Size2d dilation_;
  std::int64_t groups_;
};

/// Options of Conv1d, see Conv2dOptions.
struct Conv1dOptions {
  std::int64_t stride = 1;                      // between windows
  ConvPadding padding = 0;                      // on each side, "same" or "valid"
  std::int64_t dilation = 1;                    // between elements of a window
  std::int64_t groups = 1;                      // of channels
  bool bias = true;                             // whether there is a bias
  std::optional<Device> device = std::nullopt;  // of the parameters; default: the current device
  DType dtype = DType::f32;                     // of the parameters
};

/// conv1d() of sequences [batch, in_channels, length].
class TANDEM_API Conv1d : public Module<Conv1d> {
 public:
  /// Errors as those of Conv2d.
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
         const Conv1dOptions& options = {});

  Tensor forward(const Tensor& x) const;
  /// relu(forward(x)) in one pass over the result.
  Tensor forward_relu(const Tensor& x) const;

  Parameter weight;  // [out_channels, in_channels / groups, kernel_size]
  Parameter bias;    // [out_channels]; undefined without bias

 private:
  std::int64_t stride_;
  ConvPadding padding_;
  std::int64_t dilation_;
  std::int64_t groups_;
};

/// Options of ConvTranspose2d, see conv_transpose2d().
struct ConvTranspose2dOptions {
  Size2d stride = 1;                            // between windows
  Size2d padding = 0;                           // on each side
  Size2d output_padding = 0;                    // behind the result
  std::int64_t groups = 1;                      // of channels
  bool bias = true;                             // whether there is a bias
  Size2d dilation = 1;                          // between elements of a window
  std::optional<Device> device = std::nullopt;  // of the parameters; default: the current device
  DType dtype = DType::f32;                     // of the parameters
};

/// conv_transpose2d() of images [batch, in_channels, height, width].
class TANDEM_API ConvTranspose2d : public Module<ConvTranspose2d> {
 public:
  /// Errors as those of Conv2d.
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel_size,
                  const ConvTranspose2dOptions& options = {});

  Tensor forward(const Tensor& x) const;

  Parameter weight;  // [in_channels, out_channels / groups, kernel height, kernel width]
  Parameter bias;    // [out_channels]; undefined without bias

 private:
  Size2d stride_, padding_, output_padding_, dilation_;
  std::int64_t groups_;
};

/// Options of ConvTranspose1d, see conv_transpose2d().
struct ConvTranspose1dOptions {
  std::int64_t stride = 1;                      // between windows
  std::int64_t padding = 0;                     // on each side
  std::int64_t output_padding = 0;              // behind the result
  std::int64_t groups = 1;                      // of channels
  bool bias = true;                             // whether there is a bias
  std::int64_t dilation = 1;                    // between elements of a window
  std::optional<Device> device = std::nullopt;  // of the parameters; default: the current device
  DType dtype = DType::f32;                     // of the parameters
};

/// conv_transpose1d() of sequences [batch, in_channels, length].
class TANDEM_API ConvTranspose1d : public Module<ConvTranspose1d> {
 public:
  /// Errors as those of Conv2d.
  ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                  const ConvTranspose1dOptions& options = {});

  Tensor forward(const Tensor& x) const;

  Parameter weight;  // [in_channels, out_channels / groups, kernel_size]
  Parameter bias;    // [out_channels]; undefined without bias

 private:
  std::int64_t stride_, padding_, output_padding_, dilation_;
  std::int64_t groups_;
};

}  // namespace tandem::inline v0::nn
