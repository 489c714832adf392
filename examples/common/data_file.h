#pragma once

#include <string>

namespace example {

/// The path of a data set that comes with the samples: in share/tandem/data of an installation, else in the sources.
std::string data_file(const std::string& name);

}  // namespace example
