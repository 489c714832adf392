#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/shape.h>
#include <tandem/nn/module_ref.h>
#include <tandem/tensor/state_dict.h>

// Files of tensors in the safetensors format, as Python's safetensors and Hugging Face read and write them. Nothing in
// such a file is ever executed.

namespace tandem::inline v0 {

/// Options of save().
struct SaveOptions {
  /// Texts by name for the file's "__metadata__", in UTF-8, beside tandem's hashes. "format" is "pt" if it is not
  /// given: Hugging Face's loaders ask for it.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

/// Writes tensors to `path`. The file is replaced as a whole and is on the disk when the call returns: another program,
/// or a reader after a crash, sees either the old file or the new one. It holds a hash of each tensor, which load()
/// compares. Tensors on a GPU and strided ones are copied first.
///
/// Throws ConfigError for an undefined tensor and for names that are not UTF-8, and IoError with the path and the
/// system's reason, and then leaves an existing file untouched.
TANDEM_API void save(const StateDict& state, const std::string& path, const SaveOptions& options = {});
/// Writes the parameters and buffers of a module, under PyTorch's names: `save(model, "model.safetensors")`. A tensor
/// with several names is written once, under the first of them in alphabetical order, as safetensors.torch.save_model
/// does.
TANDEM_API void save(const nn::ModuleRef& module, const std::string& path, const SaveOptions& options = {});

/// Reads all tensors of a file, on the CPU: F16, BF16, F32, F64, I32, I64, U8 and BOOL as they are, I8, I16 and U16 as
/// i32, U32 and U64 as i64, F8_E4M3 and F8_E5M2 as f16. Memory: the tensors.
///
/// Throws IoError, with the file, the byte offset or the tensor's name, and what was expected, for a file that is
/// missing, damaged, cut off or in another format (with a guess of the format), and for a type that tandem lacks.
TANDEM_API StateDict load(const std::string& path);
/// Loads a file into a module, as nn::ModuleRef::load_state_dict() does: `load(model, "resnet18.safetensors")`. Of the
/// names of one tensor, one must be there. Throws the errors of both, and then nothing is changed.
TANDEM_API nn::LoadReport load(nn::ModuleRef module, const std::string& path, bool strict = true);

/// A safetensors file that is open for reading: what it holds, and single tensors of it.
class TANDEM_API SafetensorsFile {
 public:
  /// A tensor as the file describes it.
  struct Info {
    std::string name;         // of the tensor
    std::string dtype;        // as in the file: "BF16"
    Shape shape;              // sizes of the tensor
    std::uint64_t bytes = 0;  // in the file
    std::string hash;         // XXH3-128 of name, type, shape and bytes; empty if the file has no hashes
  };

  /// Opens the file and checks its header. Throws the errors of load().
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// The tensors in the order of their data.
  std::vector<Info> tensors() const;
  /// The texts of "__metadata__" in the order of the file, without tandem's own.
  const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept;
  /// Whether the file holds hashes, which then are compared with what is read.
  bool has_hashes() const noexcept;

  /// Reads one tensor. Throws ConfigError if there is none of this name, and the errors of load().
  Tensor read(std::string_view name) const;
  /// Reads all tensors. Throws the errors of load(). Without `verify` the hashes are not compared.
  StateDict read_all(bool verify = true) const;
  /// All tensors without a copy, for files larger than the memory: pages of the file are read when they are used.
  /// Writes to the tensors stay in this process. Types that tandem widens, bool, and tensors that are not aligned are
  /// read. Nothing is compared with hashes. If the file is cut off while a tensor lives, using the tensor ends the
  /// process (SIGBUS); a file that save() replaces is safe. Throws the errors of load().
  StateDict map_all() const;
  /// Compares the whole file with its hashes, if it has some, in little memory. Throws the errors of load().
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0
