#pragma once

// Marks the symbols that the shared library exports; all others are hidden.
#define TANDEM_API __attribute__((visibility("default")))
