// The client, driven from a test: a line in is one call, a line of JSON out is what came of it. driver.py has the other end.
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "hex.hpp"
#include "json.hpp"
#include "tickpath/client.hpp"

namespace {

using tickpath::Status;

constexpr std::int64_t ns_per_ms = 1000000;

class Driver {
public:
    std::string call(const std::string& line) {
        std::istringstream words(line);
        std::string what;
        words >> what;
        if (what == "connect") return connect(words);
        if (what == "infer") return infer(words);
        if (what == "send") return send(words);
        if (what == "receive") return receive(words);
        if (what == "ping") return ping(words);
        if (what == "models") return models(words);
        if (what == "open") return open_feed(words);
        if (what == "tick") return tick(words);
        if (what == "seek") return seek(words);
        if (what == "snapshot") return snapshot();
        if (what == "close_feed") return said(client_->close_feed(feed_));
        if (what == "check") return said(client_->check());
        if (what == "goodbye") return said(client_->goodbye("done"));
        std::uint64_t id = 0;
        words >> id;
        if (what == "cancel") return said(client_->cancel(id));
        if (what == "forget") client_->forget(id);
        if (what == "close") client_->close();
        return said(Status::ok);
    }

private:
    std::string said(Status status, const std::string& more = "") const {
        return std::string("{\"status\": \"") + tickpath::name(status) + "\", \"error\": " + json::quoted(client_->error()) +
               ", \"connected\": " + (client_->connected() ? "true" : "false") + ", \"draining\": " +
               (client_->draining() ? "true" : "false") + ", \"in_flight\": " + std::to_string(client_->in_flight()) + more + "}";
    }

    std::string connect(std::istringstream& words) {
        std::string address, wait;
        tickpath::Options options;
        words >> address >> wait >> options.timeout_ns >> options.receive_bytes;
        options.client = "driver";
        options.wait = wait == "spin" ? tickpath::Wait::spin : tickpath::Wait::block;
        const Status status = client_->connect(address, options);
        std::string models = ", \"models\": [";
        for (const tickpath::Model& model : client_->models()) models += (&model == &client_->models()[0] ? "" : ", ") + json::quoted(model.name);
        return said(status, models + "], \"server\": " + json::quoted(client_->server()));
    }

    // MODEL ROWS BUDGET_NS TIMEOUT_MS and `DTYPE:HEX` or `nil` for each input.
    bool read(std::istringstream& words, const tickpath::Model*& model, std::uint64_t& rows, tickpath::Call& call) {
        std::string name;
        words >> name >> rows >> call.budget_ns >> call.timeout_ns;
        model = find(name);
        call.timeout_ns = call.timeout_ns < 0 ? -1 : call.timeout_ns * ns_per_ms;
        if (!read_inputs(words)) return false;
        return model != nullptr;
    }

    // NAME or NAME@VERSION.
    const tickpath::Model* find(const std::string& name) const {
        const std::size_t at = name.find('@');
        return client_->find(name.substr(0, at), at == name.npos ? "" : name.substr(at + 1));
    }

    bool read_inputs(std::istringstream& words) {
        held_.clear();
        inputs_.clear();
        for (std::string word; words >> word;) {
            const std::size_t colon = word.find(':');
            held_.push_back(std::make_unique<std::vector<std::uint8_t>>());
            if (colon == word.npos) inputs_.emplace_back();
            else if (!from_hex(word.substr(colon + 1), *held_.back())) return false;
            else inputs_.emplace_back(tickpath::dtype_named(word.substr(0, colon)), held_.back()->data(), held_.back()->size());
        }
        return true;
    }

    std::string infer(std::istringstream& words) {
        const tickpath::Model* model = nullptr;
        std::uint64_t rows = 0;
        tickpath::Call call;
        if (!read(words, model, rows, call)) return said(Status::unknown_model);
        tickpath::Reply reply;
        const Status status = client_->infer(*model, rows, inputs_.data(), inputs_.size(), reply, call);
        return said(status, describe(reply));
    }

    // MODEL KEY ANEW [SNAPSHOT], MODEL as in `read`
    std::string open_feed(std::istringstream& words) {
        std::string name, key, hex;
        bool anew = false;
        words >> name >> key >> anew >> hex;
        const tickpath::Model* const model = find(name);
        std::vector<std::uint8_t> snapshot;
        if (model == nullptr || !from_hex(hex, snapshot)) return said(Status::unknown_model);
        const Status status = client_->open_feed(*model, key, feed_, anew, {snapshot.data(), snapshot.size()});
        return said(status, ", \"next_sequence\": " + std::to_string(feed_.next_sequence) + ", \"window\": " + std::to_string(feed_.window) +
                                ", \"filled\": " + std::to_string(feed_.filled));
    }

    std::string tick(std::istringstream& words) {
        if (!read_inputs(words)) return said(Status::misuse);
        tickpath::Reply reply;
        const Status status = client_->tick(feed_, inputs_.data(), inputs_.size(), reply);
        return said(status, describe(reply) + ", \"feed_next\": " + std::to_string(feed_.next_sequence));
    }

    // NEXT_SEQUENCE, as one would set it who counts himself.
    std::string seek(std::istringstream& words) {
        words >> feed_.next_sequence;
        return said(Status::ok);
    }

    std::string snapshot() {
        std::vector<std::uint8_t> taken;
        const Status status = client_->snapshot_feed(feed_, taken);
        return said(status, ", \"snapshot\": \"" + to_hex(taken.data(), taken.size()) + '"');
    }

    std::string send(std::istringstream& words) {
        const tickpath::Model* model = nullptr;
        std::uint64_t rows = 0, id = 0;
        tickpath::Call call;
        if (!read(words, model, rows, call)) return said(Status::unknown_model);
        const Status status = client_->send(*model, rows, inputs_.data(), inputs_.size(), id, call);
        return said(status, ", \"id\": " + std::to_string(id));
    }

    std::string receive(std::istringstream& words) {
        std::int64_t timeout_ms = 0;
        words >> timeout_ms;
        tickpath::Reply reply;
        const Status status = client_->receive(reply, timeout_ms * ns_per_ms);
        return said(status, describe(reply));
    }

    static std::string describe(const tickpath::Reply& reply) {
        std::string outputs;
        for (std::size_t i = 0; i < reply.output_count(); i++)
            outputs += (i > 0 ? ", \"" : "\"") + to_hex(reply.output(i).data, reply.output(i).size) + '"';
        return ", \"id\": " + std::to_string(reply.id) + ", \"version\": " + json::quoted(reply.version) + ", \"message\": " +
               json::quoted(reply.message) + ", \"outputs\": [" + outputs + "], \"stamps\": " +
               json::list(reply.stamps(), [](std::uint64_t stamp) { return std::to_string(stamp); }) + ", \"flags\": " +
               std::to_string(reply.flags) + ", \"age_ns\": " + std::to_string(reply.age_ns) + ", \"next_sequence\": " +
               std::to_string(reply.next_sequence);
    }

    std::string ping(std::istringstream& words) {
        std::int64_t timeout_ms = 0;
        std::uint64_t server_ns = 0;
        words >> timeout_ms;
        const Status status = client_->ping(server_ns, timeout_ms * ns_per_ms);
        return said(status, ", \"server_ns\": " + std::to_string(server_ns));
    }

    std::string models(std::istringstream& words) {
        std::string versions;
        words >> versions;
        const Status status = client_->update_models(versions == "versions");
        return said(status, ", \"models\": " + json::list(client_->models(), [](const tickpath::Model& model) {
                                return json::quoted(model.name + "@" + model.version);
                            }));
    }

    std::unique_ptr<tickpath::Client> client_ = std::make_unique<tickpath::Client>();
    std::vector<std::unique_ptr<std::vector<std::uint8_t>>> held_;
    std::vector<tickpath::Input> inputs_;
    tickpath::Feed feed_;
};

}  // namespace

int main() {
    std::ios::sync_with_stdio(false);
    Driver driver;
    for (std::string line; std::getline(std::cin, line);) std::cout << driver.call(line) << std::endl;
    return 0;
}
