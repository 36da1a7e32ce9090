// The Python module over checksums, copies and reads. Whatever gives a contiguous buffer is taken.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "direct_reads.h"
#include "xxh3.h"

namespace nb = nanobind;

namespace samovar::pool {
namespace {

// Below it, handing over the interpreter costs more than it gives.
constexpr size_t kShortBytes = 32 << 10;

void require(bool holds, const char* what) {
  if (!holds) throw nb::value_error(what);
}

class View {
 public:
  View(nb::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~View() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }
  View(View&& other) noexcept : buffer_(other.buffer_) { other.buffer_.obj = nullptr; }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(buffer_.buf); }
  size_t size() const { return static_cast<size_t>(buffer_.len); }

 private:
  Py_buffer buffer_;
};

Walk walk_at(size_t level) {
  size_t count;
  const NamedWalk* all = walks(&count);
  require(level < count, "level: there are not so many instruction sets");
  return all[level].walk;
}

const uint8_t* bytes_of(const nb::bytes& binding) {
  require(binding.size() > 0 && binding.size() <= kMostBindingBytes, "binding: must have 1 to 256 bytes");
  return reinterpret_cast<const uint8_t*>(binding.c_str());
}

Digest hash(const View& from, uint8_t* to, const nb::bytes& binding, Stores stores, size_t level) {
  const uint8_t* bound = bytes_of(binding);
  require(from.size() >= kLeastBytes, "data: too short for this algorithm");
  Xxh3 state(walk_at(level));
  if (from.size() < kShortBytes) {
    state.take(from.data(), from.size(), to, stores);
    return state.finish(bound, binding.size());
  }
  nb::gil_scoped_release released;
  state.take(from.data(), from.size(), to, stores);
  return state.finish(bound, binding.size());
}

nb::bytes as_bytes(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

nb::list read_ranges(DirectReads& self, int fd, const std::vector<int64_t>& offsets, const std::vector<nb::object>& buffers,
              const std::vector<nb::bytes>& bindings) {
  require(self.available(), "this system has no such reads");
  require(offsets.size() == buffers.size() && offsets.size() == bindings.size(), "offsets, buffers, bindings: must be as many");
  std::vector<View> views;
  std::vector<Range> ranges;
  for (size_t i = 0; i < buffers.size(); i++) {
    views.emplace_back(buffers[i], true);
    require(offsets[i] >= 0, "offsets: must not be negative");
    require(views[i].size() >= kLeastBytes, "buffers: one is too short for this algorithm");
    ranges.push_back({offsets[i], views[i].data(), views[i].size(), bytes_of(bindings[i]), bindings[i].size()});
  }
  std::vector<Hashed> found;
  {
    nb::gil_scoped_release released;
    found = self.read(fd, ranges);
  }
  nb::list answers;
  for (const Hashed& hashed : found) {
    if (hashed.error == 0) {
      answers.append(as_bytes(hashed.digest));
    } else {
      answers.append(hashed.error);
    }
  }
  return answers;
}

std::vector<std::string> instruction_sets() {
  size_t count;
  const NamedWalk* all = walks(&count);
  std::vector<std::string> names;
  for (size_t i = 0; i < count; i++) names.emplace_back(all[i].name);
  return names;
}

}  // namespace
}  // namespace samovar::pool

NB_MODULE(_native, module) {
  using namespace samovar::pool;
  // At the end of the process a thread may still hang in a read of the disk; what its frames hold is no leak.
  nb::set_leak_warnings(false);
  module.attr("LEAST_BYTES") = kLeastBytes;
  module.attr("ENDED") = kEnded;
  module.def("instruction_sets", &instruction_sets, "What this build holds and this CPU runs, best first.");
  module.def(
      "checksum",
      [](nb::handle data, const nb::bytes& binding, size_t level) {
        const View view(data, false);
        return as_bytes(hash(view, nullptr, binding, Stores::cached, level));
      },
      nb::arg("data"), nb::arg("binding"), nb::arg("level") = 0);
  module.def(
      "copy",
      [](nb::handle target, nb::handle source, const nb::bytes& binding, bool cached, size_t level) {
        const View to(target, true), from(source, false);
        require(to.size() == from.size(), "target and source must be as large");
        return as_bytes(hash(from, to.data(), binding, cached ? Stores::cached : Stores::streamed, level));
      },
      nb::arg("target"), nb::arg("source"), nb::arg("binding"), nb::arg("cached"), nb::arg("level") = 0);
  nb::class_<DirectReads>(module, "DirectReads", "Reads ranges of a file and hashes each; for any thread.")
      .def(
          "__init__", [](DirectReads* self, size_t level) { new (self) DirectReads(walk_at(level)); }, nb::arg("level") = 0)
      .def_prop_ro("available", &DirectReads::available)
      .def("read", &read_ranges, nb::arg("fd"), nb::arg("offsets"), nb::arg("buffers"), nb::arg("bindings"));
}
