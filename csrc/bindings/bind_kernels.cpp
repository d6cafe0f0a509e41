// The verification kernels for Python: arrays in, results into arrays that the caller allocated.
// dsi_native.kernels checks arguments and says what is wrong with them; here they are only kept
// from being read or written outside.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/bind_engine.h"
#include "kernels/passes.h"
#include "kernels/sample.h"
#include "kernels/verify.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

template <class T> using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
template <class T> using OptionalIn = std::optional<In<T>>;
template <class T> using OptionalOut = std::optional<Out<T>>;
using Logits = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using EditArrays = std::optional<std::tuple<In<std::int64_t>, In<std::int32_t>, In<std::int32_t>,
                                            In<float>>>; // offsets, ids, operations, values

void require(bool holds, const char *name, const char *what) {
  if (!holds)
    throw std::invalid_argument(std::string(name) + ": " + what);
}

template <class Array> auto *data_of(const Array &array, std::int64_t size, const char *name) {
  require(static_cast<std::int64_t>(array.size()) == size, name,
          "another number of elements than the other arguments make necessary");
  return array.data();
}

template <class Array>
auto data_of(const std::optional<Array> &array, std::int64_t size, const char *name) {
  return array ? data_of(*array, size, name) : nullptr;
}

// float32, float16, or uint16 for bfloat16; the last dimension is the width.
Rows rows_of(const Logits &array, std::size_t dimensions, const char *name) {
  require(array.ndim() == dimensions, name, "another number of dimensions");
  Rows rows;
  rows.data = array.data();
  rows.width = static_cast<std::int64_t>(array.shape(dimensions - 1));
  require(rows.width <= std::numeric_limits<Token>::max(), name, "more ids than int32 can name");
  if (array.dtype() == nb::dtype<float>())
    rows.dtype = Dtype::kF32;
  else if (array.dtype() == nb::dtype<std::uint16_t>())
    rows.dtype = Dtype::kBf16;
  else if (array.dtype() == nb::dlpack::dtype{std::uint8_t(nb::dlpack::dtype_code::Float), 16, 1})
    rows.dtype = Dtype::kF16;
  else
    require(false, name, "expected float32, float16, or uint16 that holds bfloat16");
  return rows;
}

BatchEdits edits_of(const EditArrays &arrays, std::int64_t rows, const char *name) {
  if (!arrays)
    return {};
  const auto &[offsets, ids, operations, values] = *arrays;
  const auto count = static_cast<std::int64_t>(ids.size());
  return {data_of(offsets, rows + 1, name), ids.data(), data_of(operations, count, name),
          data_of(values, count, name), count};
}

// One per Python thread, so that nothing is allocated once it has grown and no call waits.
Workspace &workspace() {
  static thread_local Workspace room;
  return room;
}

void verify_rows(const Logits &target, const In<std::int32_t> &draft_ids,
                 const In<std::uint64_t> &seed, const In<std::int64_t> &position, bool rejection,
                 const OptionalIn<float> &temperature, const OptionalIn<std::int32_t> &num_draft,
                 const std::optional<Logits> &draft, const OptionalIn<float> &draft_lse,
                 const OptionalIn<float> &draft_temperature, const OptionalIn<float> &cut,
                 const OptionalIn<float> &draft_cut, const EditArrays &edits,
                 const EditArrays &draft_edits, const OptionalIn<std::int32_t> &d2t,
                 const OptionalIn<std::int32_t> &t2d, int threads, const Out<std::int32_t> &tokens,
                 const Out<std::int32_t> &num_accepted, const OptionalOut<float> &logprob,
                 const OptionalOut<float> &lse, const Out<std::int32_t> &status) {
  VerifyInput in;
  in.target = rows_of(target, 3, "target_logits");
  in.requests = static_cast<std::int64_t>(target.shape(0));
  require(target.shape(1) >= 1, "target_logits", "no rows");
  in.drafts = static_cast<std::int64_t>(target.shape(1)) - 1;
  const std::int64_t drafts = in.requests * in.drafts;
  const std::int64_t rows = drafts + in.requests;
  in.rejection = rejection;
  in.draft_ids = data_of(draft_ids, drafts, "draft_ids");
  in.num_draft = data_of(num_draft, in.requests, "num_draft");
  in.seed = data_of(seed, in.requests, "seed");
  in.position = data_of(position, in.requests, "position");
  in.temperature = data_of(temperature, in.requests, "temperature");
  in.cut = data_of(cut, rows, "cut");
  in.edits = edits_of(edits, rows, "edits");
  if (draft) {
    in.draft = rows_of(*draft, 3, "draft_logits");
    require(draft->shape(0) == target.shape(0) && draft->shape(1) + 1 == target.shape(1),
            "draft_logits", "expected a row for each draft");
  }
  in.draft_lse = data_of(draft_lse, drafts, "draft_lse");
  in.draft_temperature = data_of(draft_temperature, in.requests, "draft_temperature");
  in.draft_cut = data_of(draft_cut, drafts, "draft_cut");
  in.draft_edits = edits_of(draft_edits, drafts, "draft_edits");
  if (d2t) {
    in.d2t_size = draft ? in.draft.width : static_cast<std::int64_t>(d2t->size());
    in.d2t = data_of(d2t, in.d2t_size, "d2t");
    require(!draft || !rejection || t2d, "t2d", "needed with d2t and draft_logits");
    in.t2d = data_of(t2d, in.target.width, "t2d");
  }
  in.with_logprobs = logprob.has_value() && lse.has_value();
  const VerifyOutput out{data_of(tokens, rows, "tokens"),
                         data_of(num_accepted, in.requests, "num_accepted"),
                         data_of(logprob, rows, "logprob"), data_of(lse, rows, "lse"),
                         data_of(status, in.requests, "status")};
  const nb::gil_scoped_release release;
  verify(in, out, workspace(), threads);
}

SampleInput sample_input(const Logits &logits, const OptionalIn<float> &temperature,
                         const OptionalIn<std::int32_t> &top_k, const OptionalIn<float> &top_p,
                         const OptionalIn<float> &min_p, const EditArrays &edits,
                         const OptionalIn<std::int32_t> &d2t) {
  SampleInput in;
  in.logits = rows_of(logits, 2, "logits");
  in.rows = static_cast<std::int64_t>(logits.shape(0));
  in.temperature = data_of(temperature, in.rows, "temperature");
  in.top_k = data_of(top_k, in.rows, "top_k");
  in.top_p = data_of(top_p, in.rows, "top_p");
  in.min_p = data_of(min_p, in.rows, "min_p");
  in.edits = edits_of(edits, in.rows, "edits");
  in.d2t = data_of(d2t, in.logits.width, "d2t");
  return in;
}

void sample_rows(const Logits &logits, const In<std::uint64_t> &seed,
                 const In<std::int64_t> &position, std::uint32_t tag,
                 const OptionalIn<float> &temperature, const OptionalIn<std::int32_t> &top_k,
                 const OptionalIn<float> &top_p, const OptionalIn<float> &min_p,
                 const EditArrays &edits, const OptionalIn<std::int32_t> &d2t, int threads,
                 const Out<std::int32_t> &token, const Out<float> &lse, const Out<float> &cuts,
                 const Out<std::int32_t> &status) {
  SampleInput in = sample_input(logits, temperature, top_k, top_p, min_p, edits, d2t);
  in.seed = data_of(seed, in.rows, "seed");
  in.position = data_of(position, in.rows, "position");
  in.tag = tag;
  const SampleOutput out{data_of(token, in.rows, "token"), data_of(lse, in.rows, "lse"),
                         data_of(cuts, in.rows, "cut"), data_of(status, in.rows, "status")};
  const nb::gil_scoped_release release;
  sample(in, out, workspace(), threads);
}

void cut_rows(const Logits &logits, const OptionalIn<float> &temperature,
              const OptionalIn<std::int32_t> &top_k, const OptionalIn<float> &top_p,
              const OptionalIn<float> &min_p, const EditArrays &edits,
              const OptionalIn<std::int32_t> &d2t, int threads, const Out<float> &cuts) {
  const SampleInput in = sample_input(logits, temperature, top_k, top_p, min_p, edits, d2t);
  float *const to = data_of(cuts, in.rows, "cut");
  const nb::gil_scoped_release release;
  cut(in, to, workspace(), threads);
}

void philox_words(std::uint64_t seed, std::int64_t position, std::uint32_t tag,
                  const In<std::int32_t> &ids, const Out<std::uint32_t> &words) {
  const auto count = static_cast<std::int64_t>(ids.size());
  std::uint32_t *const to = data_of(words, count, "words");
  std::int32_t some[16];
  std::uint32_t bits[16];
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t width = std::min<std::int64_t>(count - i, 16);
    for (std::int64_t lane = 0; lane < 16; ++lane)
      some[lane] = lane < width ? std::max(ids.data()[i + lane], 0) : 0;
    passes().token_bits({seed, position, tag}, some, 16, bits);
    std::copy(bits, bits + width, to + i);
  }
}

std::string kernel_variant(const std::optional<std::string> &name) {
  if (name && !force_passes(*name == "auto" ? nullptr : name->c_str()))
    throw std::invalid_argument("name: expected auto or a variant this machine can run, given " +
                                *name);
  return passes().name;
}

} // namespace

void bind_kernels(nb::module_ &module) {
  const auto in = [](const char *name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char *name) { return nb::arg(name).noconvert().none(); };
  module.def("verify", &verify_rows, in("target_logits"), in("draft_ids"), in("seed"),
             in("position"), nb::arg("rejection"), maybe("temperature"), maybe("num_draft"),
             maybe("draft_logits"), maybe("draft_lse"), maybe("draft_temperature"), maybe("cut"),
             maybe("draft_cut"), maybe("edits"), maybe("draft_edits"), maybe("d2t"), maybe("t2d"),
             nb::arg("threads"), in("tokens"), in("num_accepted"), maybe("logprob"), maybe("lse"),
             in("status"),
             "Fills the last five arrays: dsi_native.kernels.verify() of checked C-contiguous "
             "arrays, bfloat16 logits as uint16. Without the GIL.");
  module.def("sample", &sample_rows, in("logits"), in("seed"), in("position"), nb::arg("tag"),
             maybe("temperature"), maybe("top_k"), maybe("top_p"), maybe("min_p"), maybe("edits"),
             maybe("d2t"), nb::arg("threads"), in("token"), in("lse"), in("cut"), in("status"),
             "Fills the last four arrays: dsi_native.kernels.sample(). Like verify().");
  module.def("cut", &cut_rows, in("logits"), maybe("temperature"), maybe("top_k"), maybe("top_p"),
             maybe("min_p"), maybe("edits"), maybe("d2t"), nb::arg("threads"), in("cut"),
             "Fills the last array: dsi_native.kernels.cut(). Like verify().");
  module.def("philox_words", &philox_words, nb::arg("seed"), nb::arg("position"), nb::arg("tag"),
             in("ids"), in("words"), "Fills `words` with the 32 bits of each of `ids` >= 0.");
  module.def(
      "kernel_variant", &kernel_variant, nb::arg("name").none() = nb::none(),
      "The instruction set that the kernels use: baseline, avx2 or avx512. With a name, that "
      "one from now on; with auto, the best there is. All give the same bits.");
}

} // namespace dsi::py
