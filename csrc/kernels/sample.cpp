#include "kernels/sample.h"

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Row row_of(const SampleInput &in, std::int64_t index, EditList &edits) {
  Row row = in.logits.row(index);
  if (in.temperature != nullptr)
    row.temperature = in.temperature[index];
  row.edits = in.edits.of_row(index, edits);
  row.map = in.d2t;
  return row;
}

bool cuts(const SampleInput &in, std::int64_t index) {
  return (in.top_k != nullptr && in.top_k[index] > 0) ||
         (in.top_p != nullptr && in.top_p[index] < 1.0F) ||
         (in.min_p != nullptr && in.min_p[index] > 0.0F);
}

float find_cut(const SampleInput &in, std::int64_t index, RowLaw &law) {
  return law.find_cut(in.top_k != nullptr ? in.top_k[index] : 0,
                      in.top_p != nullptr ? in.top_p[index] : 1.0F,
                      in.min_p != nullptr ? in.min_p[index] : 0.0F);
}

} // namespace

void sample(const SampleInput &in, const SampleOutput &out, Workspace &workspace, int threads) {
  workspace.run(in.rows, threads, [&](std::int64_t index, RowRoom &room) {
    RowLaw &law = room.target;
    const bool cut = cuts(in, index);
    const std::uint32_t status = law.prepare(row_of(in, index, room.target_edits), !cut);
    out.status[index] = static_cast<std::int32_t>(status);
    out.token[index] = -1;
    out.lse[index] = -kInf;
    out.cut[index] = -kInf;
    if ((status & kRowEmpty) != 0)
      return;
    if (cut) {
      out.cut[index] = find_cut(in, index, law);
      law.set_cut(out.cut[index]);
    }
    out.token[index] = law.draw({in.seed[index], in.position[index], in.tag});
    out.lse[index] = static_cast<float>(law.lse());
  });
}

void cut(const SampleInput &in, float *out, Workspace &workspace, int threads) {
  workspace.run(in.rows, threads, [&](std::int64_t index, RowRoom &room) {
    RowLaw &law = room.target;
    out[index] = -kInf;
    if (cuts(in, index) &&
        (law.prepare(row_of(in, index, room.target_edits), false) & kRowEmpty) == 0)
      out[index] = find_cut(in, index, law);
  });
}

} // namespace dsi
