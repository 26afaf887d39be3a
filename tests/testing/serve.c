/* Answers requests with a SavedModel through TensorFlow's C API, whose loader is the one of TensorFlow Serving.
 *
 *   serve FOLDER < requests > answers
 *
 * A request is SIGNATURE COUNT and so many tensors, each NAME RANK, its dimensions and its values; the answer is COUNT and so
 * many tensors with their TF_DataType: NAME TYPE RANK, dimensions, values. All is apart by white space, and a string is an x
 * and two hex digits a byte.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

#define MOST 32 /* tensors of a signature, and dimensions of a tensor */
#define LONGEST 4096 /* of names, and bytes of strings */

static void fail(const char *what, const char *more) {
  fprintf(stderr, "%s: %s\n", what, more);
  exit(1);
}

static void check(const TF_Status *status) {
  if (TF_GetCode(status) != TF_OK) fail("TensorFlow", TF_Message(status));
}

/* Protocol buffers: the MetaGraphDef that the loader returns says what a signature's tensors are called in the graph. */

typedef struct {
  const uint8_t *at, *end;
} Bytes;

static uint64_t varint(Bytes *bytes) {
  uint64_t value = 0;
  for (int shift = 0; bytes->at < bytes->end; shift += 7) {
    uint8_t byte = *bytes->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

/* Takes the next field of a message; returns its number, 0 at the end. */
static int next_field(Bytes *message, Bytes *content, uint64_t *value) {
  if (message->at >= message->end) return 0;
  uint64_t key = varint(message);
  uint64_t length = 0;
  switch (key & 7) {
    case 0: *value = varint(message); break;
    case 1: length = 8; break;
    case 2: length = varint(message); break;
    case 5: length = 4; break;
    default: fail("MetaGraphDef", "unknown wire type");
  }
  *content = (Bytes){message->at, message->at + length};
  message->at += length;
  return (int)(key >> 3);
}

/* Takes the next entry of a map, which is field `number` of a message; returns 0 at the end. */
static int next_entry(Bytes *message, int number, Bytes *key, Bytes *value) {
  Bytes entry, content;
  uint64_t unused;
  for (int found; (found = next_field(message, &entry, &unused)) != 0;) {
    if (found != number) continue;
    while ((found = next_field(&entry, &content, &unused)) != 0) *(found == 1 ? key : value) = content;
    return 1;
  }
  return 0;
}

static int is_text(Bytes bytes, const char *text) {
  size_t length = (size_t)(bytes.end - bytes.at);
  return length == strlen(text) && memcmp(bytes.at, text, length) == 0;
}

typedef struct {
  char name[LONGEST]; /* of the signature */
  TF_DataType type;
  TF_Output place; /* in the graph */
} Slot;

static void read_tensor_info(Bytes info, TF_Graph *graph, Slot *slot) {
  Bytes content;
  uint64_t value;
  for (int number; (number = next_field(&info, &content, &value)) != 0;) {
    if (number == 2) slot->type = (TF_DataType)value;
    if (number != 1) continue;
    char name[LONGEST] = {0}; /* operation:index */
    memcpy(name, content.at, (size_t)(content.end - content.at));
    char *colon = strrchr(name, ':');
    *colon = 0;
    slot->place = (TF_Output){TF_GraphOperationByName(graph, name), atoi(colon + 1)};
    if (slot->place.oper == NULL) fail("no such operation", name);
  }
}

/* Reads the inputs (field 1) or outputs (field 2) of a signature; returns how many there are. */
static int read_slots(Bytes signature, int number, TF_Graph *graph, Slot *slots) {
  Bytes key, info;
  int count = 0;
  for (; next_entry(&signature, number, &key, &info); count++) {
    memset(&slots[count], 0, sizeof(Slot));
    memcpy(slots[count].name, key.at, (size_t)(key.end - key.at));
    read_tensor_info(info, graph, &slots[count]);
  }
  return count;
}

static Bytes find_signature(Bytes meta_graph, const char *name) {
  Bytes key, signature = {0};
  while (next_entry(&meta_graph, 5, &key, &signature))
    if (is_text(key, name)) return signature;
  fail("no such signature", name);
  return signature;
}

/* Tensors as text. */

static void read_word(char *word) {
  if (scanf("%4095s", word) != 1) fail("request", "ends too early");
}

static void read_string(TF_TString *string) {
  char word[LONGEST], bytes[LONGEST];
  read_word(word);
  size_t size = strlen(word) / 2;
  for (size_t index = 0; index < size; index++) {
    unsigned byte;
    sscanf(word + 1 + 2 * index, "%2x", &byte);
    bytes[index] = (char)byte;
  }
  TF_StringInit(string);
  TF_StringCopy(string, bytes, size);
}

static void read_value(TF_DataType type, void *data, int64_t index) {
  char word[LONGEST];
  if (type == TF_STRING) {
    read_string((TF_TString *)data + index);
    return;
  }
  read_word(word);
  switch (type) {
    case TF_FLOAT: ((float *)data)[index] = strtof(word, NULL); break;
    case TF_INT32: ((int32_t *)data)[index] = (int32_t)strtol(word, NULL, 10); break;
    case TF_INT64: ((int64_t *)data)[index] = strtoll(word, NULL, 10); break;
    default: fail("request", "type of tensor");
  }
}

static TF_Tensor *read_tensor(TF_DataType type) {
  int64_t dims[MOST], count = 1;
  int rank;
  if (scanf("%d", &rank) != 1 || rank > MOST) fail("request", "rank of tensor");
  for (int index = 0; index < rank; index++) {
    if (scanf("%" SCNd64, &dims[index]) != 1) fail("request", "dimensions of tensor");
    count *= dims[index];
  }
  size_t size = type == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(type);
  TF_Tensor *tensor = TF_AllocateTensor(type, dims, rank, (size_t)count * size);
  for (int64_t index = 0; index < count; index++) read_value(type, TF_TensorData(tensor), index);
  return tensor;
}

static void print_value(TF_DataType type, void *data, int64_t index) {
  const TF_TString *string = (TF_TString *)data + index;
  switch (type) {
    case TF_FLOAT: printf(" %.9g", ((float *)data)[index]); break;
    case TF_INT32: printf(" %" PRId32, ((int32_t *)data)[index]); break;
    case TF_STRING:
      printf(" x");
      for (size_t place = 0; place < TF_StringGetSize(string); place++)
        printf("%02x", (unsigned char)TF_StringGetDataPointer(string)[place]);
      break;
    default: fail("answer", "type of tensor");
  }
}

static void print_tensor(const char *name, TF_Tensor *tensor) {
  printf("%s %d %d", name, TF_TensorType(tensor), TF_NumDims(tensor));
  for (int index = 0; index < TF_NumDims(tensor); index++) printf(" %" PRId64, TF_Dim(tensor, index));
  for (int64_t index = 0; index < TF_TensorElementCount(tensor); index++)
    print_value(TF_TensorType(tensor), TF_TensorData(tensor), index);
  printf("\n");
}

static const Slot *find_slot(const Slot *slots, int count, const char *name) {
  for (int index = 0; index < count; index++)
    if (strcmp(slots[index].name, name) == 0) return &slots[index];
  fail("no such tensor", name);
  return NULL;
}

static void answer(TF_Session *session, TF_Graph *graph, Bytes signature, int given, TF_Status *status) {
  static Slot inputs[MOST], outputs[MOST];
  int known = read_slots(signature, 1, graph, inputs), wanted = read_slots(signature, 2, graph, outputs);
  TF_Output from[MOST], to[MOST];
  TF_Tensor *fed[MOST], *got[MOST];
  for (int index = 0; index < given; index++) {
    char name[LONGEST];
    read_word(name);
    const Slot *slot = find_slot(inputs, known, name);
    from[index] = slot->place;
    fed[index] = read_tensor(slot->type);
  }
  for (int index = 0; index < wanted; index++) to[index] = outputs[index].place;
  TF_SessionRun(session, NULL, from, fed, given, to, got, wanted, NULL, 0, NULL, status);
  check(status);
  printf("%d\n", wanted);
  for (int index = 0; index < wanted; index++) print_tensor(outputs[index].name, got[index]);
  fflush(stdout);
  for (int index = 0; index < wanted; index++) TF_DeleteTensor(got[index]);
  for (int index = 0; index < given; index++) TF_DeleteTensor(fed[index]);
}

int main(int count, char **arguments) {
  if (count != 2) fail("usage", "serve FOLDER < requests > answers");
  const char *tags[] = {"serve"};
  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  TF_Buffer *meta_graph = TF_NewBuffer();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, arguments[1], tags, 1, graph, meta_graph, status);
  check(status);
  Bytes bytes = {meta_graph->data, (const uint8_t *)meta_graph->data + meta_graph->length};
  char name[LONGEST];
  int given;
  while (scanf("%4095s %d", name, &given) == 2) answer(session, graph, find_signature(bytes, name), given, status);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
