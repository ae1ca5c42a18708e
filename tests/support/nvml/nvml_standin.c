/* A stand-in for NVIDIA's libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 * It reads the text file "machine" in its own folder. standin.py writes that file and describes its lines. The
 * library finds the folder by dladdr(3), because the environment does not reach the child that queries NVML.
 * The functions are those that pynvml calls for cdigen and those that `nvidia-smi -L` and `--query-gpu` need.
 * Signatures, structures, numbers: NVIDIA's NVML API reference; only what is used here is declared.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MAX_GPUS 32
#define MAX_INSTANCES 8
#define MAX_FAULTS 32
#define MAX_RESULTS 4096
#define MAX_PROCESSES 1024

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    UNKNOWN = 999,
};

/* A GPU or a MIG device. parent: the GPU of a MIG device, otherwise NULL. missing: an index without a device. */
struct device {
    struct device *parent;
    int missing;
    char uuid[96], name[96], profile[32];
    unsigned domain, bus, slot, brand, major, minor_capability, gpu_instance, compute_instance;
    int minor, mig, plain_names; /* minor, mig: -1 is "not supported" */
    unsigned long long memory;
    int instances;
};

struct fault {
    struct device *device; /* NULL: any device */
    char function[64], kind[16];
    double number;
};

/* The result of a function for a device and an argument: first, and second if the function returns a pair. */
struct result {
    struct device *device;
    char function[64];
    unsigned argument;
    unsigned long long first, second;
};

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static struct result results[MAX_RESULTS];
static struct process processes[MAX_PROCESSES];
static struct device *process_devices[MAX_PROCESSES];
static int result_count, process_count;
static struct device gpus[MAX_GPUS], instances[MAX_GPUS][MAX_INSTANCES];
static struct fault faults[MAX_FAULTS];
static int gpu_count, fault_count, initialised;
static unsigned cuda;
static char driver[80], folder[4096];

static void hang(void)
{
    signal(SIGTERM, SIG_IGN);
    while (pause())
        ;
}

static void trace(const char *function)
{
    char path[sizeof folder + 8];
    FILE *file;

    snprintf(path, sizeof path, "%s/calls", folder);
    file = fopen(path, "a");
    if (file) {
        fprintf(file, "%s\n", function);
        fclose(file);
    }
}

static int suffer(const struct fault *fault, const char *function)
{
    static const char rubbish[] = "NVML: {\"rubbish\": [1, 2\n";
    const size_t length = sizeof rubbish - 1;

#define IS(word) (!strcmp(fault->kind, word))
    if (IS("error")) return (int)fault->number;
    if (IS("slow")) usleep((useconds_t)(fault->number * 1e6));
    if (IS("hang")) hang();
    if (IS("crash")) *(volatile int *)0 = 0;
    if (IS("signal")) raise((int)fault->number);
    if (IS("exit")) _exit((int)fault->number);
    if (IS("grandchild") && fork() == 0) hang();
    if (IS("trace")) trace(function);
    if (IS("rubbish") && write(STDOUT_FILENO, rubbish, length) < 0) return UNKNOWN;
    while (IS("flood") && write((int)fault->number, rubbish, length) > 0)
        ;
#undef IS
    return SUCCESS;
}

/* Cause the fault of FUNCTION for DEVICE, if any; a result other than SUCCESS is returned to the caller. */
static int meet(const char *function, const struct device *device)
{
    for (const struct fault *fault = faults; fault < faults + fault_count; fault++) {
        int concerns = !fault->device || (device && (device == fault->device || device->parent == fault->device));
        int result = SUCCESS;

        if (concerns && (!strcmp(fault->function, "*") || !strcmp(fault->function, function)))
            result = suffer(fault, function);
        if (result != SUCCESS)
            return result;
    }
    return SUCCESS;
}

static int is_device(const struct device *device)
{
    for (int gpu = 0; gpu < gpu_count; gpu++) {
        if (device == &gpus[gpu])
            return 1;
        if (device >= instances[gpu] && device < instances[gpu] + gpus[gpu].instances)
            return !device->missing;
    }
    return 0;
}

#define REQUIRE(condition, code) do { if (!(condition)) return (code); } while (0)
#define ENTER(device) do { \
        REQUIRE(initialised, UNINITIALIZED); \
        int met = meet(__func__, device); \
        REQUIRE(met == SUCCESS, met); \
    } while (0)
#define ENTER_DEVICE(device) do { REQUIRE(is_device(device), INVALID_ARGUMENT); ENTER(device); } while (0)
#define ENTER_GPU(device) do { ENTER_DEVICE(device); REQUIRE(!(device)->parent, INVALID_ARGUMENT); } while (0)
#define ENTER_MIG(device) do { ENTER_DEVICE(device); REQUIRE((device)->parent, INVALID_ARGUMENT); } while (0)

static int give(const char *text, char *buffer, unsigned length)
{
    REQUIRE(buffer, INVALID_ARGUMENT);
    REQUIRE(strlen(text) < length, INSUFFICIENT_SIZE);
    strcpy(buffer, text);
    return SUCCESS;
}

/* ---- the description ---- */

static void read_instance(struct device *gpu, const char *value)
{
    struct device *instance = &instances[gpu - gpus][gpu->instances];

    if (gpu->instances == MAX_INSTANCES)
        return;
    gpu->instances++;
    instance->parent = gpu;
    instance->missing = sscanf(value, "%u %u %95s %31s", &instance->gpu_instance,
                               &instance->compute_instance, instance->uuid, instance->profile) < 4;
}

static void read_result(struct device *device, const char *value)
{
    struct result *result = &results[result_count];

    if (result_count == MAX_RESULTS)
        return;
    result_count++;
    result->device = device;
    sscanf(value, "%63s %u %llu %llu", result->function, &result->argument, &result->first, &result->second);
}

static void read_process(struct device *device, const char *value)
{
    if (process_count == MAX_PROCESSES)
        return;
    process_devices[process_count] = device;
    sscanf(value, "%u %llu", &processes[process_count].pid, &processes[process_count].memory);
    process_count++;
}

static const struct result *result_of(const struct device *device, const char *function, unsigned argument)
{
    for (const struct result *result = results; result < results + result_count; result++)
        if (result->device == device && result->argument == argument && !strcmp(result->function, function))
            return result;
    return NULL;
}

#define IS(word) (!strcmp(key, word))
static void read_gpu(struct device *gpu, const char *key, const char *value)
{
    if (IS("uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    if (IS("name")) snprintf(gpu->name, sizeof gpu->name, "%s", value);
    if (IS("minor")) gpu->minor = atoi(value);
    if (IS("brand")) gpu->brand = (unsigned)atoi(value);
    if (IS("memory")) gpu->memory = strtoull(value, NULL, 10);
    if (IS("capability")) sscanf(value, "%u.%u", &gpu->major, &gpu->minor_capability);
    if (IS("mig")) gpu->mig = atoi(value);
    if (IS("plain-names")) gpu->plain_names = 1;
    if (IS("instance")) read_instance(gpu, value);
}

static void read_line(const char *key, const char *value)
{
    struct device *gpu = gpu_count ? &gpus[gpu_count - 1] : NULL;

    if (IS("driver")) snprintf(driver, sizeof driver, "%s", value);
    if (IS("cuda")) cuda = (unsigned)atoi(value);
    if (IS("fault") && fault_count < MAX_FAULTS) {
        struct fault *fault = &faults[fault_count++];

        fault->device = gpu;
        sscanf(value, "%63s %15s %lf", fault->function, fault->kind, &fault->number);
    }
    if (IS("gpu") && gpu_count < MAX_GPUS) {
        gpu = &gpus[gpu_count++];
        gpu->minor = gpu->mig = -1;
        sscanf(value, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->slot);
    }
    if (gpu)
        read_gpu(gpu, key, value);
    if (gpu && IS("result")) read_result(gpu, value);
    if (gpu && IS("process")) read_process(gpu, value);
    if (gpu && gpu->instances) {
        struct device *instance = &instances[gpu - gpus][gpu->instances - 1];

        if (IS("instance-result")) read_result(instance, value);
        if (IS("instance-process")) read_process(instance, value);
    }
}
#undef IS

__attribute__((constructor)) static void read_machine(void)
{
    char path[sizeof folder + 8], line[512], *space;
    Dl_info info;
    FILE *file;

    if (!dladdr((void *)read_machine, &info))
        return;
    snprintf(folder, sizeof folder, "%s", info.dli_fname);
    *strrchr(folder, '/') = 0;
    snprintf(path, sizeof path, "%s/machine", folder);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        space = strchr(line, ' ');
        if (space)
            *space++ = 0;
        read_line(line, space ? space : "");
    }
    if (file)
        fclose(file);
    meet("load", NULL);
}

/* A function that returns one number of a device, or "not supported" if UNLESS is true. */
#define NUMBER(function, ENTRY, unless, number) \
    API int function(struct device *device, unsigned *value) \
    { \
        ENTRY(device); \
        REQUIRE(!(unless), NOT_SUPPORTED); \
        *value = (unsigned)(number); \
        return SUCCESS; \
    }

/* ---- the system ---- */

API int nvmlInitWithFlags(unsigned flags)
{
    int met = meet(__func__, NULL);

    REQUIRE(met == SUCCESS, met);
    /* NVML_INIT_FLAG_NO_GPUS is 1: without this flag, a machine without GPUs is an error. */
    REQUIRE(gpu_count || flags & 1, NOT_FOUND);
    /* NVML_INIT_FLAG_NO_ATTACH is 2: without this flag, NVML opens the GPUs. */
    met = flags & 2 ? SUCCESS : meet("attach", NULL);
    REQUIRE(met == SUCCESS, met);
    initialised = 1;
    return SUCCESS;
}

API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API int nvmlShutdown(void)
{
    ENTER(NULL);
    initialised = 0;
    return SUCCESS;
}

API const char *nvmlErrorString(int code)
{
    return code == SUCCESS ? "Success" : code == NOT_FOUND ? "Not Found" : "Error of the stand-in";
}

/* Undocumented. nvidia-smi (tested: 470, 535, 550) rejects a library that has no table for its GUID, "Mismatch
 * in versions". The table's first word is its size in bytes. nvidia-smi ignores functions beyond this size, so a
 * table with only its size is sufficient. */
API int nvmlInternalGetExportTable(const void **table, const unsigned char *guid)
{
    static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static const size_t empty = sizeof empty;

    REQUIRE(!memcmp(guid, known, sizeof known), NOT_FOUND);
    *table = &empty;
    return SUCCESS;
}

API int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    ENTER(NULL);
    return give(driver, version, length);
}

API int nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER(NULL);
    *version = (int)cuda;
    return SUCCESS;
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* ---- GPUs ---- */

API int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(NULL);
    *count = (unsigned)gpu_count;
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    REQUIRE(index < (unsigned)gpu_count, INVALID_ARGUMENT);
    ENTER(&gpus[index]);
    *device = &gpus[index];
    return SUCCESS;
}

API int nvmlDeviceGetName(struct device *device, char *name, unsigned length)
{
    const struct device *gpu;
    char text[160];

    ENTER_DEVICE(device);
    gpu = device->parent ? device->parent : device;
    snprintf(text, sizeof text, "%s", gpu->name);
    if (device != gpu && !gpu->plain_names)
        snprintf(text, sizeof text, "%s MIG %s", gpu->name, device->profile);
    return give(text, name, length);
}

API int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned length)
{
    ENTER_DEVICE(device);
    return give(device->uuid, uuid, length);
}

API int nvmlDeviceGetCudaComputeCapability(struct device *device, int *major, int *minor)
{
    ENTER_GPU(device);
    *major = (int)device->major;
    *minor = (int)device->minor_capability;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetIndex, ENTER_GPU, 0, device - gpus)
NUMBER(nvmlDeviceGetMinorNumber, ENTER_GPU, device->minor < 0, device->minor)
NUMBER(nvmlDeviceGetBrand, ENTER_GPU, 0, device->brand)

API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct device **device)
{
    unsigned domain, bus, slot;

    REQUIRE(sscanf(address, "%x:%x:%x", &domain, &bus, &slot) == 3, INVALID_ARGUMENT);
    for (struct device *gpu = gpus; gpu < gpus + gpu_count; gpu++)
        if (gpu->domain == domain && gpu->bus == bus && gpu->slot == slot) {
            ENTER(gpu);
            *device = gpu;
            return SUCCESS;
        }
    return NOT_FOUND;
}

/* nvidia-ctk 1.20 and later. */
API int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    for (struct device *gpu = gpus; gpu < gpus + gpu_count; gpu++)
        if (!strcmp(gpu->uuid, uuid)) {
            ENTER(gpu);
            *device = gpu;
            return SUCCESS;
        }
    return NOT_FOUND;
}

/* ---- results ---- */

/* The result "memory-total" of a device; without it, the GPU's own memory (0 for a MIG device). */
static unsigned long long memory_of(const struct device *device)
{
    const struct result *total = result_of(device, "memory-total", 0);

    return total ? total->first : device->memory;
}

static unsigned long long used_memory(const struct device *device)
{
    const struct result *used = result_of(device, "memory-used", 0);

    return used ? used->first : 0;
}

/* The memory that the driver reserves: a part of "used" in the older structure, but not in the newer structure. */
#define RESERVED (512ull << 20)

struct memory {
    unsigned long long total, free, used;
};

API int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    unsigned long long used;

    ENTER_DEVICE(device);
    used = used_memory(device) + RESERVED;
    *memory = (struct memory){.total = memory_of(device), .free = memory_of(device) - used, .used = used};
    return SUCCESS;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

API int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    ENTER_DEVICE(device);
    REQUIRE(memory->version == (sizeof *memory | 2 << 24), 25);
    memory->total = memory_of(device);
    memory->reserved = RESERVED;
    memory->used = used_memory(device);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

struct bar1 {
    unsigned long long total, free, used;
};

API int nvmlDeviceGetBAR1MemoryInfo(struct device *device, struct bar1 *bar1)
{
    const struct result *result;

    ENTER_DEVICE(device);
    result = result_of(device, __func__, 0);
    REQUIRE(result, NOT_SUPPORTED);
    *bar1 = (struct bar1){.total = result->first, .free = result->first - result->second, .used = result->second};
    return SUCCESS;
}

/* A function that returns its result from the file "machine", or "not supported". */
#define RESULT(function, type, PARAMETERS, argument) \
    API int function PARAMETERS(type) \
    { \
        const struct result *result; \
        ENTER_DEVICE(device); \
        result = result_of(device, __func__, argument); \
        REQUIRE(result, NOT_SUPPORTED); \
        *value = (type)result->first; \
        return SUCCESS; \
    }
#define ALONE(type) (struct device *device, type *value)
#define OF_KIND(type) (struct device *device, unsigned kind, type *value)
#define OF_ERRORS(type) (struct device *device, unsigned errors, unsigned counter, type *value)
#define OF_PLACE(type) (struct device *device, unsigned errors, unsigned counter, unsigned place, type *value)

/* A function that returns a pair of results. */
#define PAIR(function, type) \
    API int function(struct device *device, type *first, type *second) \
    { \
        const struct result *result; \
        ENTER_DEVICE(device); \
        result = result_of(device, __func__, 0); \
        REQUIRE(result, NOT_SUPPORTED); \
        *first = (type)result->first; \
        *second = (type)result->second; \
        return SUCCESS; \
    }

RESULT(nvmlDeviceGetTemperature, unsigned, OF_KIND, kind)
RESULT(nvmlDeviceGetPowerUsage, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetEnforcedPowerLimit, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetClockInfo, unsigned, OF_KIND, kind)
RESULT(nvmlDeviceGetMaxClockInfo, unsigned, OF_KIND, kind)
RESULT(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetCurrPcieLinkWidth, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetMaxPcieLinkWidth, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetPcieThroughput, unsigned, OF_KIND, kind)
RESULT(nvmlDeviceGetMemoryBusWidth, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetNumGpuCores, unsigned, ALONE, 0)
RESULT(nvmlDeviceGetTotalEccErrors, unsigned long long, OF_ERRORS, counter == 0 ? errors : 99)
RESULT(nvmlDeviceGetMemoryErrorCounter, unsigned long long, OF_PLACE, errors == 1 && counter == 0 ? place : 99)
PAIR(nvmlDeviceGetEncoderUtilization, unsigned)
PAIR(nvmlDeviceGetDecoderUtilization, unsigned)
PAIR(nvmlDeviceGetEccMode, unsigned)

struct rates {
    unsigned gpu, memory;
};

API int nvmlDeviceGetUtilizationRates(struct device *device, struct rates *rates)
{
    const struct result *result;

    ENTER_DEVICE(device);
    result = result_of(device, __func__, 0);
    REQUIRE(result, NOT_SUPPORTED);
    *rates = (struct rates){.gpu = (unsigned)result->first, .memory = (unsigned)result->second};
    return SUCCESS;
}

static int give_processes(struct device *device, unsigned *count, struct process *list)
{
    unsigned found = 0, room = *count;

    for (int each = 0; each < process_count; each++)
        if (process_devices[each] == device) {
            if (found < room)
                list[found] = processes[each];
            found++;
        }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *list)
{
    ENTER_DEVICE(device);
    return give_processes(device, count, list);
}

API int nvmlDeviceGetComputeRunningProcesses_v2(struct device *device, unsigned *count, struct process *list)
{
    ENTER_DEVICE(device);
    return give_processes(device, count, list);
}

/* ---- health ---- */

struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned type;
    int result;
    union {
        double floating;
        unsigned long long number;
    } value;
};

API int nvmlDeviceGetFieldValues(struct device *device, int count, struct field *fields)
{
    ENTER_GPU(device);
    for (struct field *field = fields; field < fields + count; field++) {
        const struct result *result = result_of(device, __func__, field->id);

        field->type = 1; /* NVML_VALUE_TYPE_UNSIGNED_INT */
        field->result = result ? (int)result->second : NOT_SUPPORTED;
        field->value.number = result ? result->first : 0;
    }
    return SUCCESS;
}

API int nvmlDeviceGetRemappedRows(struct device *device, unsigned *corrected, unsigned *uncorrected,
                                  unsigned *pending, unsigned *failed)
{
    const struct result *result;

    ENTER_GPU(device);
    result = result_of(device, __func__, 0);
    REQUIRE(result, NOT_SUPPORTED);
    *corrected = *uncorrected = 0;
    *pending = (unsigned)result->first;
    *failed = (unsigned)result->second;
    return SUCCESS;
}

struct fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique, state;
};

API int nvmlDeviceGetGpuFabricInfo(struct device *device, struct fabric *fabric)
{
    const struct result *result;

    ENTER_GPU(device);
    result = result_of(device, "nvmlDeviceGetGpuFabricInfoV", 0);
    REQUIRE(result, NOT_SUPPORTED);
    fabric->state = (unsigned)result->first;
    fabric->status = (int)result->second;
    result = result_of(device, "fabric-clique", 0); /* the first byte of the cluster's UUID, and the clique */
    if (result) {
        fabric->cluster[0] = (unsigned char)result->first;
        fabric->clique = (unsigned)result->second;
    }
    return SUCCESS;
}

struct versioned_fabric {
    unsigned version;
    struct fabric fabric;
    unsigned health;
};

API int nvmlDeviceGetGpuFabricInfoV(struct device *device, struct versioned_fabric *versioned)
{
    ENTER_GPU(device);
    REQUIRE(versioned->version == 0x02000024, INVALID_ARGUMENT);
    return nvmlDeviceGetGpuFabricInfo(device, &versioned->fabric);
}

struct pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

API int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *pci)
{
    ENTER_GPU(device);
    *pci = (struct pci){.domain = device->domain, .bus = device->bus, .device = device->slot};
    snprintf(pci->legacy_id, sizeof pci->legacy_id, "%04X:%02X:%02X.0", device->domain & 0xffff,
             device->bus & 0xff, device->slot & 0xff);
    snprintf(pci->id, sizeof pci->id, "%08X:%02X:%02X.0", device->domain, device->bus & 0xff,
             device->slot & 0xff);
    return SUCCESS;
}

/* ---- links ---- */

/* Values of a link: whether it is up, the device at its other end (0: a GPU, 2: a switch), and that device's bus. */
#define OF_LINK(function, type, give) \
    API int function(struct device *device, unsigned link, type *value) \
    { \
        const struct result *result; \
        ENTER_GPU(device); \
        result = result_of(device, __func__, link); \
        REQUIRE(result, result_of(device, __func__, 0) ? INVALID_ARGUMENT : NOT_SUPPORTED); \
        give; \
        return SUCCESS; \
    }

OF_LINK(nvmlDeviceGetNvLinkState, unsigned, *value = (unsigned)result->first)
OF_LINK(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned, *value = (unsigned)result->first)
OF_LINK(nvmlDeviceGetNvLinkRemotePciInfo_v2, struct pci, *value = (struct pci){.bus = (unsigned)result->first};
        snprintf(value->id, sizeof value->id, "00000000:%02X:00.0", value->bus & 0xff))

/* Whether two GPUs reach each other over NVLink: a result by the index of the other GPU. */
API int nvmlDeviceGetP2PStatus(struct device *one, struct device *other, unsigned way, unsigned *status)
{
    const struct result *result;

    ENTER_GPU(one);
    result = way == 2 ? result_of(one, __func__, (unsigned)(other - gpus)) : NULL;
    *status = result ? (unsigned)result->first : 5; /* NVML_P2P_STATUS_NOT_SUPPORTED */
    return SUCCESS;
}

/* ---- MIG ---- */

API int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    ENTER_GPU(device);
    REQUIRE(device->mig >= 0, NOT_SUPPORTED);
    *current = *pending = (unsigned)device->mig;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **mig)
{
    ENTER_GPU(device);
    REQUIRE(device->mig >= 0, NOT_SUPPORTED);
    REQUIRE(index < 7, INVALID_ARGUMENT);
    REQUIRE(index < (unsigned)device->instances && !instances[device - gpus][index].missing, NOT_FOUND);
    *mig = &instances[device - gpus][index];
    return SUCCESS;
}

NUMBER(nvmlDeviceGetMaxMigDeviceCount, ENTER_GPU, 0, device->mig >= 0 ? 7 : 0)
NUMBER(nvmlDeviceGetGpuInstanceId, ENTER_MIG, 0, device->gpu_instance)
NUMBER(nvmlDeviceGetComputeInstanceId, ENTER_MIG, 0, device->compute_instance)

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

API int nvmlDeviceGetAttributes_v2(struct device *mig, struct attributes *attributes)
{
    unsigned compute = 0, slices = 0, gigabytes = 0;

    ENTER_MIG(mig);
    if (sscanf(mig->profile, "%uc.%ug.%ugb", &compute, &slices, &gigabytes) != 3) {
        sscanf(mig->profile, "%ug.%ugb", &slices, &gigabytes);
        compute = slices;
    }
    *attributes = (struct attributes){.gpu_slices = slices, .compute_slices = compute};
    /* An A100's 1g.5gb has 4864 MiB, an H100's 1g.10gb 9984 MiB (NVIDIA MIG User Guide, nvidia-smi's output). */
    attributes->memory_mib = gigabytes * 1024ull - 256;
    if (attributes->memory_mib > mig->parent->memory >> 20)
        attributes->memory_mib = mig->parent->memory >> 20;
    return SUCCESS;
}
