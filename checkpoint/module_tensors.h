#pragma once

#include <tandem/nn/module_ref.h>
#include <tandem/tensor/state_dict.h>

// Internal: the tensors of a module as files hold them, a tied one once.

namespace tandem::inline v0::checkpoint {

/// The state of a module. A tensor with several names has the first of them in alphabetical order.
StateDict state_of(const nn::ModuleRef& module);
/// As ModuleRef::load_state_dict(). Of the names of one tensor, one must be there.
nn::LoadReport load_into(nn::ModuleRef module, StateDict state, bool strict);

}  // namespace tandem::inline v0::checkpoint
