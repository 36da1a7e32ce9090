// Attention of the normal path. A row with few queries (decode) is split over its context: tasks (row, KV head, chunk)
// leave partial results that are merged afterwards. A row with many (prefill) is split over its queries: tasks (row, KV
// head, tile of queries) walk the chunks and merge as they go. Both merge in order of chunk, so the bits are the same.
#include <algorithm>

#include "chunks.h"
#include "ops.h"
#include "parallel.h"

namespace samovar {
namespace {

// Partial results of one row of several queries may take this much; beyond, it is walked tile by tile.
constexpr size_t kSplitBytes = size_t{4} << 20;

// How many pieces of the work a thread takes at least, so that all end at about the same time, and how many chunks one
// piece has at most.
constexpr int kPiecesOfThread = 4;
constexpr int kMostChunks = 16;

struct RowTasks {
  int row;
  int first_task;
  int chunks;        // of the last query
  int tiles;         // 0: split over the context
  size_t partial_at;  // in results of one query and head; split rows only
};

struct Scratch {  // of one thread
  Partial* running;
  Partial* chunk;
  float* running_values;
  float* chunk_values;
};

struct Call {
  const Kernels& kernels;
  const KVPool& kv;
  const float* q;
  size_t q_ld;
  const AttentionRow* rows;
  int row_count;
  int group;  // query heads of a KV head
  float scale;
  float* out;
  size_t out_ld;
  RowTasks* tasks;
  Partial* partial;
  float* values;
  Scratch* scratch;

  int tile_queries() const { return std::max(1, kMaxAttendRows / group); }

  const float* query(const AttentionRow& row, int i, int kv_head) const {
    return q + (row.first + static_cast<size_t>(i)) * q_ld + static_cast<size_t>(kv_head) * group * kv.head_dim;
  }
  float* result(const AttentionRow& row, int i, int kv_head, int head) const {
    return out + (row.first + static_cast<size_t>(i)) * out_ld +
           (static_cast<size_t>(kv_head) * group + head) * kv.head_dim;
  }

  // Fills `tasks`, one entry a row in order of its tasks; returns the number of tasks. Tiled rows come first: theirs
  // are the long tasks.
  int plan(size_t* results) const {
    int count = 0, entries = 0;
    *results = 0;
    for (bool tiled : {true, false}) {
      for (int index = 0; index < row_count; index++) {
        const AttentionRow& row = rows[index];
        const int chunks = chunks_of(row.start + row.count);
        const size_t of_row = static_cast<size_t>(chunks) * kv.kv_heads * row.count * group;
        const bool split = row.count == 1 || (row.count <= tile_queries() &&
                                              of_row * kv.head_dim * sizeof(float) <= kSplitBytes);
        if (split == tiled) continue;
        const int tiles = split ? 0 : (row.count + tile_queries() - 1) / tile_queries();
        tasks[entries++] = {index, count, chunks, tiles, *results};
        count += kv.kv_heads * (split ? chunks : tiles);
        if (split) *results += of_row;
      }
    }
    return count;
  }

  void attend_split(const AttentionRow& row, const RowTasks& plan, int unit) const {
    const int kv_head = unit / plan.chunks, chunk = unit % plan.chunks;
    const size_t at = plan.partial_at + static_cast<size_t>(unit) * row.count * group;
    kernels.attend_chunk(kv, row.table, kv_head, chunk, query(row, 0, kv_head), q_ld, group, row.count, row.start,
                         scale, partial + at, values + at * kv.head_dim);
  }

  void merge_split(const AttentionRow& row, const RowTasks& plan, int kv_head) const {
    const size_t step = static_cast<size_t>(row.count) * group;
    const size_t first = plan.partial_at + static_cast<size_t>(kv_head) * plan.chunks * step;
    for (int i = 0; i < row.count; i++) {
      for (int head = 0; head < group; head++) {
        const size_t at = first + static_cast<size_t>(i) * group + head;
        // Chunks that a query does not see are left out, not merged as nothing: that could turn -0 into 0.
        merge_chunks(kernels, partial + at, values + at * kv.head_dim, step, chunks_of(row.start + i + 1), kv.head_dim,
                     result(row, i, kv_head, head));
      }
    }
  }

  void attend_tile(const AttentionRow& row, const RowTasks& plan, int unit, const Scratch& own) const {
    // Head by head, so that the keys and values in use fit a core's cache; of a head the last tile sees most and is
    // begun first.
    const int kv_head = unit / plan.tiles, tile = plan.tiles - 1 - unit % plan.tiles;
    const int low = tile * tile_queries(), queries = std::min(row.count - low, tile_queries());
    const int start = row.start + low, chunks = chunks_of(start + queries), head_dim = kv.head_dim;
    for (int chunk = 0; chunk < chunks; chunk++) {
      Partial* into = chunk == 0 ? own.running : own.chunk;
      float* into_values = chunk == 0 ? own.running_values : own.chunk_values;
      kernels.attend_chunk(kv, row.table, kv_head, chunk, query(row, low, kv_head), q_ld, group, queries, start, scale,
                           into, into_values);
      if (chunk == 0) continue;
      const int first_seeing = std::max(0, chunk * kChunkTokens - start);
      for (int at = first_seeing * group; at < queries * group; at++) {
        const size_t offset = static_cast<size_t>(at) * head_dim;
        kernels.merge(own.running + at, own.running_values + offset, own.chunk[at], own.chunk_values + offset,
                      head_dim);
      }
    }
    for (int i = 0; i < queries; i++) {
      for (int head = 0; head < group; head++) {
        const size_t at = static_cast<size_t>(i) * group + head;
        kernels.finish(own.running[at], own.running_values + at * head_dim, head_dim,
                       result(row, low + i, kv_head, head));
      }
    }
  }

  void take_scratch(Carver& carver, int threads, size_t results) {
    const size_t of_thread = kMaxAttendRows;
    scratch = carver.take<Scratch>(threads);
    for (int thread = 0; thread < threads; thread++) {
      Scratch own{carver.take<Partial>(of_thread), carver.take<Partial>(of_thread),
                  carver.take<float>(of_thread * kv.head_dim), carver.take<float>(of_thread * kv.head_dim)};
      if (scratch != nullptr) scratch[thread] = own;
    }
    partial = carver.take<Partial>(results);
    values = carver.take<float>(results * kv.head_dim);
  }
};

}  // namespace

void attention(Pool& pool, const Kernels& kernels, const KVPool& kv, const float* q, size_t q_ld,
               const AttentionRow* rows, int row_count, int heads, float scale, float* out, size_t out_ld,
               Workspace& workspace) {
  if (row_count == 0) return;
  Call call{kernels, kv,  q,      q_ld,    rows,    row_count, heads / kv.kv_heads,
            scale,   out, out_ld, nullptr, nullptr, nullptr,   nullptr};
  // The plan needs its own table before the size of the rest is known; growing loses it, so it is made again.
  Carver first(workspace.at_least(row_count * sizeof(RowTasks)));
  call.tasks = first.take<RowTasks>(row_count);
  size_t results;
  call.plan(&results);
  Carver measure(nullptr);
  measure.take<RowTasks>(row_count);
  call.take_scratch(measure, pool.threads(), results);
  Carver carver(workspace.at_least(measure.used()));
  call.tasks = carver.take<RowTasks>(row_count);
  call.take_scratch(carver, pool.threads(), results);
  const int count = call.plan(&results);

  const auto attend_task = [&](int thread, int task) {
    const auto begins_after = [](int wanted, const RowTasks& entry) { return wanted < entry.first_task; };
    const RowTasks* after = std::upper_bound(call.tasks, call.tasks + row_count, task, begins_after);
    const RowTasks& plan = after[-1];
    const AttentionRow& row = rows[plan.row];
    const int unit = task - plan.first_task;
    if (plan.tiles != 0) {
      call.attend_tile(row, plan, unit, call.scratch[thread]);
    } else {
      call.attend_split(row, plan, unit);
    }
  };
  // Chunks that follow each other, where there are enough of them: the kernels read ahead. Tiles are long tasks.
  const int piece = call.tasks[0].tiles != 0 ? 1 : std::clamp(count / (kPiecesOfThread * pool.threads()), 1, kMostChunks);
  over_queue(pool, count, piece, [&](int thread, int low, int high) {
    for (int task = low; task < high; task++) attend_task(thread, task);
  });
  const size_t merged = results * kv.head_dim / (static_cast<size_t>(row_count) * kv.kv_heads);
  over_items(pool, row_count * kv.kv_heads, merged, [&](int low, int high) {
    for (int item = low; item < high; item++) {
      const RowTasks& plan = call.tasks[item / kv.kv_heads];
      if (plan.tiles == 0) call.merge_split(rows[plan.row], plan, item % kv.kv_heads);
    }
  });
}

}  // namespace samovar
