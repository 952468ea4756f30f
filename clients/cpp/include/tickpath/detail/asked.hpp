// What was asked and is not answered: a table made before the first request.
//
// Rules
// - Ids count up and are never used twice. An id lives in the place that its low bits name; one whose place is taken is passed over.
// - What nobody waits for any more stays until it is answered, since the server counts it so; its answer is dropped.
#pragma once

#include <cstdint>
#include <vector>

#include "tickpath/model.hpp"

namespace tickpath {
namespace detail {

struct Asked {
    std::uint64_t id = 0;  // 0: the place is free
    Tag answer = Tag::none;
    bool forgotten = false;
    const Model* model = nullptr;  // of an Infer
    std::uint64_t rows = 0;
    std::uint64_t reply_bytes = 0;  // at the most
};

class AskedTable {
public:
    // Room for so many at once, and for a few Pings beside them.
    void reset(std::size_t count_max) {
        std::size_t places = 8;
        while (places < count_max + 8) places *= 2;
        places_.assign(places, Asked());
        clear();
    }
    void clear() {
        for (Asked& each : places_) each = Asked();
        awaited_ = infers_ = used_ = 0;
        reply_bytes_ = 0;
    }

    std::size_t awaited() const { return awaited_; }  // without what was forgotten
    std::size_t infers() const { return infers_; }    // with it
    std::uint64_t reply_bytes() const { return reply_bytes_; }
    bool full() const { return used_ >= places_.size(); }

    // Only where it is not full.
    Asked& add(Tag answer) {
        do last_id_++;
        while (place(last_id_).id != 0);
        Asked& asked = place(last_id_);
        asked.id = last_id_;
        asked.answer = answer;
        used_++;
        awaited_++;
        return asked;
    }
    void is_infer(Asked& asked, const Model& model, std::uint64_t rows, std::uint64_t reply_bytes) {
        asked.model = &model;
        asked.rows = rows;
        asked.reply_bytes = reply_bytes;
        reply_bytes_ += reply_bytes;
        infers_++;
    }
    // nullptr where no such id is in flight.
    Asked* find(std::uint64_t id) {
        if (id == 0 || places_.empty()) return nullptr;
        Asked& asked = place(id);
        return asked.id == id ? &asked : nullptr;
    }
    void forget(Asked& asked) {
        if (!asked.forgotten) awaited_--;
        asked.forgotten = true;
    }
    void remove(Asked& asked) {
        if (!asked.forgotten) awaited_--;
        if (asked.answer == Tag::result) infers_--;
        reply_bytes_ -= asked.reply_bytes;
        used_--;
        asked = Asked();
    }

private:
    Asked& place(std::uint64_t id) { return places_[static_cast<std::size_t>(id) & (places_.size() - 1)]; }

    std::vector<Asked> places_;
    std::size_t awaited_ = 0;
    std::size_t infers_ = 0;
    std::size_t used_ = 0;
    std::uint64_t reply_bytes_ = 0;
    std::uint64_t last_id_ = 0;
};

}  // namespace detail
}  // namespace tickpath
