// What benchmarks measure the machine with, as methods of Context.
#include "bind.h"
#include "peaks.h"

namespace samovar {

void bind_peaks(nb::class_<Context>& context) {
  context
      .def(
          "read_all",
          [](Context& self, const Rows<const uint8_t, 1>& data) {
            nb::gil_scoped_release released;
            std::lock_guard<std::mutex> held(self.mutex);
            return read_all(self.pool, data.data(), data.size());
          },
          nb::arg("data"))
      .def(
          "multiply",
          [](Context& self, bool int8, int64_t repeats) {
            require(repeats > 0 && repeats <= int64_t{1} << 24, "repeats: must be 1 to 2^24");
            nb::gil_scoped_release released;
            std::lock_guard<std::mutex> held(self.mutex);
            return multiply(self.pool, *self.kernels, int8, repeats);
          },
          nb::arg("int8"), nb::arg("repeats"));
}

}  // namespace samovar
