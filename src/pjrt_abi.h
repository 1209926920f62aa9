/* pjrt_abi.h - the part of the PJRT C API that we call: slots of the function table and argument structs, at the newest
 * sizes known (API 0.117).  A plugin accepts a struct that is at least as large as its own, so newest sizes serve every
 * plugin.  Names are the API's.  Every struct starts with its own size and an extension pointer; fields marked `out` are
 * the plugin's.  Nothing else of the API is assumed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_PJRT_ABI_H
#define TPUTORCH_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_Serialized PJRT_Serialized;         /* what backs serialized bytes */

typedef struct PJRT_Extension_Base { size_t struct_size; int type; struct PJRT_Extension_Base *next; } PJRT_Extension_Base;

/* The table: struct_size, extension, version, then one pointer a slot.  Slot n lies at 40 + 8 n. */
typedef struct PJRT_Api {
    size_t struct_size;
    PJRT_Extension_Base *extension_start;
    struct { size_t struct_size; PJRT_Extension_Base *extension_start; int major_version, minor_version; } pjrt_api_version;
    void *slot[138];
} PJRT_Api;
_Static_assert(offsetof(PJRT_Api, slot) == 40, "slots start at 40");

enum {
    PJRT_Error_Destroy = 0, PJRT_Error_Message = 1, PJRT_Error_GetCode = 2, PJRT_Plugin_Initialize = 3, PJRT_Plugin_Attributes = 4,
    PJRT_Event_Destroy = 5, PJRT_Event_IsReady = 6, PJRT_Event_Await = 8, PJRT_Event_OnReady = 9, PJRT_Client_Create = 10,
    PJRT_Client_Destroy = 11, PJRT_Client_PlatformName = 12, PJRT_Client_ProcessIndex = 13, PJRT_Client_PlatformVersion = 14,
    PJRT_Client_Devices = 15, PJRT_Client_AddressableDevices = 16, PJRT_Client_Compile = 20, PJRT_Client_BufferFromHostBuffer = 22,
    PJRT_DeviceDescription_Id = 23, PJRT_DeviceDescription_Attributes = 25, PJRT_DeviceDescription_Kind = 26,
    PJRT_Device_GetDescription = 29, PJRT_Device_DefaultMemory = 33, PJRT_Device_MemoryStats = 34, PJRT_Executable_Destroy = 40,
    PJRT_Executable_NumOutputs = 44, PJRT_Executable_GetCostAnalysis = 46, PJRT_Executable_OptimizedProgram = 48,
    PJRT_Executable_Serialize = 49, PJRT_LoadedExecutable_Destroy = 50, PJRT_LoadedExecutable_GetExecutable = 51,
    PJRT_LoadedExecutable_Execute = 55, PJRT_Executable_DeserializeAndLoad = 56, PJRT_Buffer_Destroy = 58,
    PJRT_Buffer_OnDeviceSizeInBytes = 64, PJRT_Buffer_Delete = 67, PJRT_Buffer_IsDeleted = 68, PJRT_Buffer_CopyToDevice = 69,
    PJRT_Buffer_ToHostBuffer = 70, PJRT_Buffer_ReadyEvent = 72, PJRT_Buffer_OpaqueDeviceMemoryDataPointer = 76,
    PJRT_TopologyDescription_Create = 82, PJRT_TopologyDescription_Destroy = 83, PJRT_TopologyDescription_PlatformVersion = 85,
    PJRT_TopologyDescription_GetDeviceDescriptions = 86, PJRT_TopologyDescription_Serialize = 87, PJRT_Compile = 89,
    PJRT_Executable_OutputElementTypes = 90, PJRT_Executable_OutputDimensions = 91, PJRT_Executable_Fingerprint = 94,
    PJRT_Client_TopologyDescription = 95, PJRT_Executable_GetCompiledMemoryStats = 96,
};

enum { PJRT_NamedValue_kString = 0, PJRT_NamedValue_kInt64 = 1, PJRT_NamedValue_kInt64List = 2, PJRT_NamedValue_kFloat = 3, PJRT_NamedValue_kBool = 4 };
enum { PJRT_HostBufferSemantics_kImmutableOnlyDuringCall = 0, PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes = 1,
       PJRT_HostBufferSemantics_kImmutableZeroCopy = 2, PJRT_HostBufferSemantics_kMutableZeroCopy = 3 };

#define HEAD size_t struct_size; PJRT_Extension_Base *extension_start

typedef struct PJRT_Error_Destroy_Args { HEAD; PJRT_Error *error; } PJRT_Error_Destroy_Args;
typedef struct PJRT_Error_Message_Args { HEAD; const PJRT_Error *error; const char *message; size_t message_size; /* out */ } PJRT_Error_Message_Args;
typedef struct PJRT_Error_GetCode_Args { HEAD; const PJRT_Error *error; int code; /* out */ } PJRT_Error_GetCode_Args;
typedef struct PJRT_Plugin_Initialize_Args { HEAD; } PJRT_Plugin_Initialize_Args;
typedef struct PJRT_NamedValue {
    HEAD; const char *name; size_t name_size; int type;
    union { const char *string_value; int64_t int64_value; const int64_t *int64_array_value; float float_value; bool bool_value; };
    size_t value_size;
} PJRT_NamedValue;
typedef struct PJRT_Plugin_Attributes_Args { HEAD; const PJRT_NamedValue *attributes; size_t num_attributes; /* out */ } PJRT_Plugin_Attributes_Args;

typedef struct PJRT_Event_Destroy_Args { HEAD; PJRT_Event *event; } PJRT_Event_Destroy_Args;
typedef struct PJRT_Event_IsReady_Args { HEAD; PJRT_Event *event; bool is_ready; /* out */ } PJRT_Event_IsReady_Args;
typedef struct PJRT_Event_Await_Args { HEAD; PJRT_Event *event; } PJRT_Event_Await_Args;
typedef struct PJRT_Event_OnReady_Args { HEAD; PJRT_Event *event; void (*callback)(PJRT_Error *, void *); void *user_arg; } PJRT_Event_OnReady_Args;

typedef struct PJRT_Client_Create_Args {
    HEAD; const PJRT_NamedValue *create_options; size_t num_options;
    void *kv_get_callback, *kv_get_user_arg, *kv_put_callback, *kv_put_user_arg;
    PJRT_Client *client;                                /* out */
    void *kv_try_get_callback, *kv_try_get_user_arg;
} PJRT_Client_Create_Args;
typedef struct PJRT_Client_Destroy_Args { HEAD; PJRT_Client *client; } PJRT_Client_Destroy_Args;
typedef struct PJRT_Client_PlatformName_Args { HEAD; PJRT_Client *client; const char *platform_name; size_t platform_name_size; /* out */ } PJRT_Client_PlatformName_Args;
typedef struct PJRT_Client_ProcessIndex_Args { HEAD; PJRT_Client *client; int process_index; /* out */ } PJRT_Client_ProcessIndex_Args;
typedef struct PJRT_Client_PlatformVersion_Args { HEAD; PJRT_Client *client; const char *platform_version; size_t platform_version_size; /* out */ } PJRT_Client_PlatformVersion_Args;
typedef struct PJRT_Client_Devices_Args { HEAD; PJRT_Client *client; PJRT_Device *const *devices; size_t num_devices; /* out */ } PJRT_Client_Devices_Args;
typedef PJRT_Client_Devices_Args PJRT_Client_AddressableDevices_Args;

typedef struct PJRT_Program { HEAD; char *code; size_t code_size; const char *format; size_t format_size; } PJRT_Program;
typedef struct PJRT_Client_Compile_Args {
    HEAD; PJRT_Client *client; const PJRT_Program *program; const char *compile_options; size_t compile_options_size;
    PJRT_LoadedExecutable *executable;                  /* out */
} PJRT_Client_Compile_Args;
typedef struct PJRT_Client_BufferFromHostBuffer_Args {
    HEAD; PJRT_Client *client; const void *data; int type; const int64_t *dims; size_t num_dims; const int64_t *byte_strides;
    size_t num_byte_strides; int host_buffer_semantics; PJRT_Device *device; PJRT_Memory *memory; void *device_layout;
    PJRT_Event *done_with_host_buffer; PJRT_Buffer *buffer; /* out */
} PJRT_Client_BufferFromHostBuffer_Args;

typedef struct PJRT_DeviceDescription_Id_Args { HEAD; PJRT_DeviceDescription *device_description; int id; /* out */ } PJRT_DeviceDescription_Id_Args;
typedef struct PJRT_DeviceDescription_Attributes_Args { HEAD; PJRT_DeviceDescription *device_description; size_t num_attributes; const PJRT_NamedValue *attributes; /* out */ } PJRT_DeviceDescription_Attributes_Args;
typedef struct PJRT_DeviceDescription_Kind_Args { HEAD; PJRT_DeviceDescription *device_description; const char *device_kind; size_t device_kind_size; /* out */ } PJRT_DeviceDescription_Kind_Args;
typedef struct PJRT_Device_GetDescription_Args { HEAD; PJRT_Device *device; PJRT_DeviceDescription *device_description; /* out */ } PJRT_Device_GetDescription_Args;
typedef struct PJRT_Device_DefaultMemory_Args { HEAD; PJRT_Device *device; PJRT_Memory *memory; /* out */ } PJRT_Device_DefaultMemory_Args;
typedef struct PJRT_Stat { int64_t value; bool is_set; } PJRT_Stat;
typedef struct PJRT_Device_MemoryStats_Args {
    HEAD; PJRT_Device *device; int64_t bytes_in_use;    /* out, as the rest */
    PJRT_Stat peak_bytes_in_use, num_allocs, largest_alloc_size, bytes_limit, bytes_reserved, peak_bytes_reserved,
        bytes_reservable_limit, largest_free_block_bytes, pool_bytes, peak_pool_bytes, newest;
} PJRT_Device_MemoryStats_Args;

typedef struct PJRT_Executable_Destroy_Args { HEAD; PJRT_Executable *executable; } PJRT_Executable_Destroy_Args;
typedef struct PJRT_Executable_NumOutputs_Args { HEAD; PJRT_Executable *executable; size_t num_outputs; /* out */ } PJRT_Executable_NumOutputs_Args;
typedef struct PJRT_Executable_GetCostAnalysis_Args { HEAD; PJRT_Executable *executable; size_t num_properties; const PJRT_NamedValue *properties; /* out */ } PJRT_Executable_GetCostAnalysis_Args;
typedef struct PJRT_Executable_OptimizedProgram_Args { HEAD; PJRT_Executable *executable; PJRT_Program *program; /* out */ } PJRT_Executable_OptimizedProgram_Args;
typedef struct PJRT_Executable_Serialize_Args {
    HEAD; const PJRT_Executable *executable; const char *serialized_bytes; size_t serialized_bytes_size; PJRT_Serialized *serialized_executable;
    void (*serialized_executable_deleter)(PJRT_Serialized *); /* out */
} PJRT_Executable_Serialize_Args;
typedef struct PJRT_LoadedExecutable_Destroy_Args { HEAD; PJRT_LoadedExecutable *executable; } PJRT_LoadedExecutable_Destroy_Args;
typedef struct PJRT_LoadedExecutable_GetExecutable_Args { HEAD; PJRT_LoadedExecutable *loaded_executable; PJRT_Executable *executable; /* out */ } PJRT_LoadedExecutable_GetExecutable_Args;
typedef struct PJRT_ExecuteOptions {
    HEAD; void **send_callbacks, **recv_callbacks; size_t num_send_ops, num_recv_ops; int launch_id; const int64_t *non_donatable_input_indices;
    size_t num_non_donatable_input_indices; void *context; const char *call_location; size_t num_tasks; int *task_ids; int64_t *incarnation_ids;
    void *newest[4];
} PJRT_ExecuteOptions;
typedef struct PJRT_LoadedExecutable_Execute_Args {
    HEAD; PJRT_LoadedExecutable *executable; PJRT_ExecuteOptions *options; PJRT_Buffer *const *const *argument_lists; size_t num_devices, num_args;
    PJRT_Buffer **const *output_lists; PJRT_Event **device_complete_events; /* in and out */
    PJRT_Device *execute_device;
} PJRT_LoadedExecutable_Execute_Args;
typedef struct PJRT_Executable_DeserializeAndLoad_Args {
    HEAD; PJRT_Client *client; const char *serialized_executable; size_t serialized_executable_size; PJRT_LoadedExecutable *loaded_executable; /* out */
    const char *overridden_serialized_compile_options; size_t overridden_serialized_compile_options_size;
    void *newest;
} PJRT_Executable_DeserializeAndLoad_Args;

typedef struct PJRT_Buffer_Destroy_Args { HEAD; PJRT_Buffer *buffer; } PJRT_Buffer_Destroy_Args;
typedef PJRT_Buffer_Destroy_Args PJRT_Buffer_Delete_Args;
typedef struct PJRT_Buffer_OnDeviceSizeInBytes_Args { HEAD; PJRT_Buffer *buffer; size_t on_device_size_in_bytes; /* out */ } PJRT_Buffer_OnDeviceSizeInBytes_Args;
typedef struct PJRT_Buffer_IsDeleted_Args { HEAD; PJRT_Buffer *buffer; bool is_deleted; /* out */ } PJRT_Buffer_IsDeleted_Args;
typedef struct PJRT_Buffer_CopyToDevice_Args { HEAD; PJRT_Buffer *buffer; PJRT_Device *dst_device; PJRT_Buffer *dst_buffer; /* out */ } PJRT_Buffer_CopyToDevice_Args;
typedef struct PJRT_Buffer_ToHostBuffer_Args { HEAD; PJRT_Buffer *src; void *host_layout, *dst; size_t dst_size; PJRT_Event *event; /* out */ } PJRT_Buffer_ToHostBuffer_Args;
typedef struct PJRT_Buffer_ReadyEvent_Args { HEAD; PJRT_Buffer *buffer; PJRT_Event *event; /* out */ } PJRT_Buffer_ReadyEvent_Args;
typedef struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args { HEAD; PJRT_Buffer *buffer; void *device_memory_ptr; /* out */ } PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args;

typedef struct PJRT_TopologyDescription_Create_Args { HEAD; const char *topology_name; size_t topology_name_size; const PJRT_NamedValue *create_options; size_t num_options; PJRT_TopologyDescription *topology; /* out */ } PJRT_TopologyDescription_Create_Args;
typedef struct PJRT_TopologyDescription_Destroy_Args { HEAD; PJRT_TopologyDescription *topology; } PJRT_TopologyDescription_Destroy_Args;
typedef struct PJRT_TopologyDescription_PlatformVersion_Args { HEAD; PJRT_TopologyDescription *topology; const char *platform_version; size_t platform_version_size; /* out */ } PJRT_TopologyDescription_PlatformVersion_Args;
typedef struct PJRT_TopologyDescription_GetDeviceDescriptions_Args { HEAD; PJRT_TopologyDescription *topology; PJRT_DeviceDescription *const *descriptions; size_t num_descriptions; /* out */ } PJRT_TopologyDescription_GetDeviceDescriptions_Args;
typedef struct PJRT_TopologyDescription_Serialize_Args { HEAD; PJRT_TopologyDescription *topology; const char *serialized_bytes; size_t serialized_bytes_size; PJRT_Serialized *serialized_topology; void (*serialized_topology_deleter)(PJRT_Serialized *); /* out */ } PJRT_TopologyDescription_Serialize_Args;
typedef struct PJRT_Compile_Args { HEAD; const PJRT_TopologyDescription *topology; const PJRT_Program *program; const char *compile_options; size_t compile_options_size; PJRT_Client *client; PJRT_Executable *executable; /* out */ } PJRT_Compile_Args;
typedef struct PJRT_Executable_OutputElementTypes_Args { HEAD; PJRT_Executable *executable; int *output_types; size_t num_output_types; /* out */ } PJRT_Executable_OutputElementTypes_Args;
typedef struct PJRT_Executable_OutputDimensions_Args { HEAD; PJRT_Executable *executable; size_t num_outputs; const int64_t *dims; const size_t *dim_sizes; /* out */ } PJRT_Executable_OutputDimensions_Args;
typedef struct PJRT_Executable_Fingerprint_Args { HEAD; PJRT_Executable *executable; const char *executable_fingerprint; size_t executable_fingerprint_size; /* out */ } PJRT_Executable_Fingerprint_Args;
typedef struct PJRT_Client_TopologyDescription_Args { HEAD; PJRT_Client *client; PJRT_TopologyDescription *topology; /* out */ } PJRT_Client_TopologyDescription_Args;
typedef struct PJRT_Executable_GetCompiledMemoryStats_Args {
    HEAD; PJRT_Executable *executable; int64_t generated_code_size_in_bytes, argument_size_in_bytes, output_size_in_bytes, alias_size_in_bytes,
        temp_size_in_bytes, host_generated_code_size_in_bytes, host_argument_size_in_bytes, host_output_size_in_bytes,
        host_alias_size_in_bytes, host_temp_size_in_bytes, peak_memory_in_bytes, newest[4]; /* out; bytes */
} PJRT_Executable_GetCompiledMemoryStats_Args;

#undef HEAD

/* Where each struct ends, by its last field: the newest size a plugin asks for. */
#define ENDS(T, last, bytes) _Static_assert(offsetof(PJRT_##T##_Args, last) + sizeof(((PJRT_##T##_Args *)0)->last) == (bytes), #T)
ENDS(Error_Destroy, error, 24);
ENDS(Error_Message, message_size, 40);
ENDS(Error_GetCode, code, 28);
ENDS(Plugin_Initialize, extension_start, 16);
ENDS(Plugin_Attributes, num_attributes, 32);
ENDS(Event_Destroy, event, 24);
ENDS(Event_IsReady, is_ready, 25);
ENDS(Event_Await, event, 24);
ENDS(Event_OnReady, user_arg, 40);
ENDS(Client_Create, kv_try_get_user_arg, 88);
ENDS(Client_Destroy, client, 24);
ENDS(Client_PlatformName, platform_name_size, 40);
ENDS(Client_ProcessIndex, process_index, 28);
ENDS(Client_PlatformVersion, platform_version_size, 40);
ENDS(Client_Devices, num_devices, 40);
ENDS(Client_Compile, executable, 56);
ENDS(Client_BufferFromHostBuffer, buffer, 120);
ENDS(DeviceDescription_Id, id, 28);
ENDS(DeviceDescription_Attributes, attributes, 40);
ENDS(DeviceDescription_Kind, device_kind_size, 40);
ENDS(Device_GetDescription, device_description, 32);
ENDS(Device_DefaultMemory, memory, 32);
ENDS(Device_MemoryStats, newest.is_set, 201);
ENDS(Executable_Destroy, executable, 24);
ENDS(Executable_NumOutputs, num_outputs, 32);
ENDS(Executable_GetCostAnalysis, properties, 40);
ENDS(Executable_OptimizedProgram, program, 32);
ENDS(Executable_Serialize, serialized_executable_deleter, 56);
ENDS(LoadedExecutable_Destroy, executable, 24);
ENDS(LoadedExecutable_GetExecutable, executable, 32);
ENDS(LoadedExecutable_Execute, execute_device, 80);
ENDS(Executable_DeserializeAndLoad, newest, 72);
ENDS(Buffer_Destroy, buffer, 24);
ENDS(Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes, 32);
ENDS(Buffer_IsDeleted, is_deleted, 25);
ENDS(Buffer_CopyToDevice, dst_buffer, 40);
ENDS(Buffer_ToHostBuffer, event, 56);
ENDS(Buffer_ReadyEvent, event, 32);
ENDS(Buffer_OpaqueDeviceMemoryDataPointer, device_memory_ptr, 32);
ENDS(TopologyDescription_Create, topology, 56);
ENDS(TopologyDescription_Destroy, topology, 24);
ENDS(TopologyDescription_PlatformVersion, platform_version_size, 40);
ENDS(TopologyDescription_GetDeviceDescriptions, num_descriptions, 40);
ENDS(TopologyDescription_Serialize, serialized_topology_deleter, 56);
ENDS(Compile, executable, 64);
ENDS(Executable_OutputElementTypes, num_output_types, 40);
ENDS(Executable_OutputDimensions, dim_sizes, 48);
ENDS(Executable_Fingerprint, executable_fingerprint_size, 40);
ENDS(Client_TopologyDescription, topology, 32);
ENDS(Executable_GetCompiledMemoryStats, newest, 144);
#undef ENDS
_Static_assert(sizeof(PJRT_NamedValue) == 56, "NamedValue");
_Static_assert(sizeof(PJRT_Program) == 48, "Program");
_Static_assert(sizeof(PJRT_ExecuteOptions) == 144, "ExecuteOptions");
_Static_assert(sizeof(PJRT_Extension_Base) == 24, "Extension_Base");

#endif
