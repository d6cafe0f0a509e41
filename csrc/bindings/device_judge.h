// Judging where the rows are. A Python server that keeps its logits on a device and judges them
// there is asked for verdicts, see python/dsi_native/models/device_judge.py: only tokens cross to
// the host. Here is what it needs to know of a job, and what its answers mean.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "runtime/server.h"

namespace dsi::py {

namespace nb = nanobind;

// What Judge::verify or Judge::draft would have returned, from the answer to verify(): (tokens
// int32 [n], logprobs float32 [n] or None, status int32 [n], judged_frontier), rows up to the one
// that ended the window; or to sample(): (id, status, temperature, cut, lse, row), row None for a
// point mass. Needs the GIL. Throws std::invalid_argument where the answer is no such thing.
Outcome judged_on_device(const Job &job, nb::handle answer);

// Lets go of rows on devices that no law refers to any more; judged_on_device() does so too. Needs
// the GIL.
void drop_device_rows();

// Copies to the host the rows of laws that lie on a device, of the job and of what its frontier()
// will return: a target that judges on the CPU is about to read them. Call without the GIL.
void fetch_laws(Job &job);

// What a server that judges reads of a job, beside what bind_job() offers to all of them.
void bind_judging(nb::class_<Job> &job);

} // namespace dsi::py
