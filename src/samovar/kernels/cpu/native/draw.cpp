// Filters by a histogram instead of a sort: weights lie in [0, 1], where the order of floats is that of their bits, so a
// bucket is a sign, an exponent and three bits of mantissa, and only the bucket that holds the border is sorted.
#include "draw.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "parallel.h"

namespace samovar {
namespace {

constexpr int kBucketShift = 20;
constexpr int kBuckets = (0x3F800000 >> kBucketShift) + 1;  // up to the weight 1
constexpr int kStretch = 1024;  // tokens summed at once

inline int bucket_of(float weight) {
  uint32_t bits;
  std::memcpy(&bits, &weight, sizeof bits);
  return std::min(static_cast<int>(bits >> kBucketShift), kBuckets - 1);
}

struct Scratch {  // of one thread
  float* weights;     // [n]
  float* candidates;  // [n]
  double* stretches;  // [n / kStretch + 1]
};

class Row {
 public:
  Row(float* weights, int n, float* candidates) : weights_(weights), candidates_(candidates), n_(n) {}

  // The smallest weight that the rules keep.
  float border(const DrawRule& rule) {
    float lowest = rule.min_p;
    if (rule.top_k > 0 && rule.top_k < n_) lowest = std::max(lowest, kth_best(rule.top_k));
    if (rule.top_p < 1.0) lowest = std::max(lowest, nucleus(rule.top_p, lowest));
    return lowest;
  }

 private:
  float kth_best(int k) {
    int counts[kBuckets] = {};
    for (int i = 0; i < n_; i++) counts[bucket_of(weights_[i])]++;
    int bucket = kBuckets - 1, above = 0;
    while (above + counts[bucket] < k) above += counts[bucket--];
    const int found = gather(bucket, 0.0f);
    std::nth_element(candidates_, candidates_ + (k - above - 1), candidates_ + found, std::greater<float>());
    return candidates_[k - above - 1];
  }

  // Of the weights from `lowest` on: the least in the smallest set of best ones with a share of `top_p`.
  float nucleus(double top_p, float lowest) {
    double masses[kBuckets] = {};
    for (int i = 0; i < n_; i++) masses[bucket_of(weights_[i])] += weights_[i] >= lowest ? weights_[i] : 0.0f;
    double total = 0.0;
    for (int bucket = kBuckets - 1; bucket >= 0; bucket--) total += masses[bucket];
    const double wanted = top_p * total;
    int bucket = kBuckets - 1;
    double above = 0.0;
    while (bucket > 0 && above + masses[bucket] < wanted) above += masses[bucket--];
    const int found = gather(bucket, lowest);
    std::sort(candidates_, candidates_ + found, std::greater<float>());
    int at = 0;
    for (; at + 1 < found; at++) {
      above += candidates_[at];
      if (above >= wanted) break;
    }
    return found == 0 ? lowest : candidates_[at];
  }

  int gather(int bucket, float lowest) {
    int found = 0;
    for (int i = 0; i < n_; i++) {
      candidates_[found] = weights_[i];
      found += bucket_of(weights_[i]) == bucket && weights_[i] >= lowest;
    }
    return found;
  }

  float* weights_;
  float* candidates_;
  int n_;
};

// The token at which the cumulative weight, in token order, passes u of the total.
int pick(const float* weights, int n, float border, double u, double* stretches) {
  const int count = (n + kStretch - 1) / kStretch;
  double total = 0.0;
  for (int s = 0; s < count; s++) {
    const int end = std::min(n, (s + 1) * kStretch);
    double sums[4] = {};
    int i = s * kStretch;
    for (; i + 4 <= end; i += 4)
      for (int lane = 0; lane < 4; lane++) sums[lane] += weights[i + lane] >= border ? weights[i + lane] : 0.0f;
    for (; i < end; i++) sums[0] += weights[i] >= border ? weights[i] : 0.0f;
    stretches[s] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    total += stretches[s];
  }
  const double wanted = u * total;
  double before = 0.0;
  int last = 0;
  for (int s = 0; s < count; s++) {
    if (before + stretches[s] <= wanted && s + 1 < count) {
      before += stretches[s];
      continue;
    }
    double passed = before;
    bool any = false;
    for (int i = s * kStretch; i < std::min(n, (s + 1) * kStretch); i++) {
      if (weights[i] < border || weights[i] == 0.0f) continue;
      passed += weights[i];
      last = i;
      any = true;
      if (passed > wanted) return i;
    }
    // Rounding can leave the sum of a stretch short of what its parts add up to one by one, or beyond it.
    if (any) return last;
    before += stretches[s];
  }
  for (int i = n - 1; i >= 0; i--)
    if (weights[i] >= border && weights[i] > 0.0f) return i;
  return last;
}

}  // namespace

void draw(Pool& pool, const Kernels& kernels, const float* x, size_t ld, int n, const int32_t* rows,
          const DrawRule* rules, int count, int32_t* token, Workspace& workspace) {
  if (count == 0) return;
  const auto carve = [&](Carver& carver) {
    return Scratch{carver.take<float>(n), carver.take<float>(static_cast<size_t>(n) + 1),
                   carver.take<double>(n / kStretch + 1)};
  };
  Carver measure(nullptr);
  carve(measure);
  const size_t of_thread = measure.used();
  uint8_t* memory = workspace.at_least(of_thread * pool.threads());
  const auto one = [&](int thread, int i) {
    Carver carver(memory + of_thread * thread);
    const Scratch own = carve(carver);
    const float* logits = x + static_cast<size_t>(rows[i]) * ld;
    bool finite;
    const float top = logits[kernels.argmax(logits, n, &finite)];
    kernels.exponentials(logits, n, top, 1.0f / rules[i].temperature, own.weights);
    const float border = Row(own.weights, n, own.candidates).border(rules[i]);
    token[i] = pick(own.weights, n, border, rules[i].u, own.stretches);
  };
  if (count == 1 || pool.threads() == 1) {
    for (int i = 0; i < count; i++) one(0, i);
  } else {
    over_queue(pool, count, 1, [&](int thread, int low, int) { one(thread, low); });
  }
}

}  // namespace samovar
