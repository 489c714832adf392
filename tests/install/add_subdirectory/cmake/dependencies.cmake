message(FATAL_ERROR "tandem took this project's module for its own")
